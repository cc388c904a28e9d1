//! As whom a program signs people in, and what the tokens shall be good for.

use url::Url;

/// A program that keeps no secret of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicClient {
    pub id: String,
    /// What tokens must be made for. The built-in issuer makes tokens for its own API only and need not be told.
    pub audience: Option<String>,
}

impl PublicClient {
    /// How the audience is asked for: `resource` (RFC 8707) takes an absolute URI; what is none goes by the
    /// name that issuers without RFC 8707 listen to.
    pub(super) fn target(&self) -> Option<(&'static str, &str)> {
        let audience = self.audience.as_deref().filter(|text| !text.is_empty())?;
        let name = if Url::parse(audience).is_ok() { "resource" } else { "audience" };
        Some((name, audience))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absolute_uri_is_a_resource_and_anything_else_an_audience() {
        let name = |audience: Option<&str>| {
            let client = PublicClient { id: "cli".to_owned(), audience: audience.map(str::to_owned) };
            client.target().map(|(name, _)| name)
        };
        for uri in ["https://api.example.org", "urn:gpuaas:api", "api://gpuaas"] {
            assert_eq!(name(Some(uri)), Some("resource"), "{uri}");
        }
        for other in ["gpuaas", "api.example.org/v1", "0f1e-2d3c"] {
            assert_eq!(name(Some(other)), Some("audience"), "{other}");
        }
        assert_eq!((name(None), name(Some(""))), (None, None));
    }
}
