//! Texts of the caller as segments of a path.

/// Encodes a text so that it stays one segment of the path, whatever it is. A URL drops the segments `.` and `..`,
/// and an empty one names no resource, so `DELETE /members/../policies/x` would delete what nobody named. These
/// three get a space in front, which no identifier has: the server refuses them as it refuses any other wrong one.
/// A URL takes a backslash for a slash.
pub fn encode_path(segment: &str) -> String {
    match segment {
        "" | "." | ".." => format!("%20{segment}"),
        _ => progenitor_client::encode_path(segment).replace('\\', "%5C"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_stays_one_segment_of_the_path() {
        for odd in ["", ".", "..", "%2e%2e", "a/b", "a?b", "a#b", "..;", "..\\..", "\\"] {
            let url = format!("https://gpuaas.example.org/members/{}/policies", encode_path(odd));
            let url = reqwest::Url::parse(&url).unwrap();
            let segments: Vec<&str> = url.path_segments().unwrap().collect();
            assert_eq!((segments.len(), segments[0], segments[2]), (3, "members", "policies"), "{odd:?}");
            assert!(!segments[1].is_empty() && url.query().is_none() && url.fragment().is_none(), "{odd:?}");
        }
        assert_eq!(encode_path("org_0193b3a0"), "org_0193b3a0");
    }
}
