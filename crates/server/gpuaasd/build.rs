//! Lists the files of `web/dist`, the built pages, for `web::assets`. Where `scripts/web.sh` did not run there are none, and
//! the program is built without them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

const DIST: &str = "../../../web/dist";
/// A file beside another one, with the same content compressed.
const COMPRESSED: [&str; 2] = ["gz", "br"];

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed={DIST}");
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?).join(DIST);
    // Cargo takes a directory that is missing for one that changed, and would build this crate again each time. Where it
    // cannot be made, that is all that happens.
    let _ = fs::create_dir_all(&root);
    let mut files = Vec::new();
    for dir in [root.clone(), root.join("assets")] {
        let Ok(entries) = fs::read_dir(dir) else { continue };
        for entry in entries {
            files.push(entry?.path());
        }
    }
    files.retain(|file| file.is_file() && !is_hidden(file) && !is_compressed(file));
    files.sort();
    let mut code = String::from("&[\n");
    for file in files {
        let path = file.strip_prefix(&root).map_err(io::Error::other)?;
        let [gzip, brotli] = COMPRESSED.map(|ending| {
            let beside = PathBuf::from(format!("{}.{ending}", file.display()));
            if beside.is_file() { format!("Some(include_bytes!({beside:?}))") } else { "None".to_owned() }
        });
        code += &format!(
            "    File {{ path: {path:?}, plain: include_bytes!({file:?}), gzip: {gzip}, brotli: {brotli} }},\n"
        );
    }
    code += "]\n";
    let out = PathBuf::from(std::env::var("OUT_DIR").map_err(io::Error::other)?);
    fs::write(out.join("web_files.rs"), code)
}

/// What `scripts/web.sh` notes for itself.
fn is_hidden(file: &Path) -> bool {
    file.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'))
}

fn is_compressed(file: &Path) -> bool {
    file.extension().is_some_and(|ending| COMPRESSED.iter().any(|compressed| ending == *compressed))
}
