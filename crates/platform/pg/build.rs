//! Lists the files of `migrations/functions` for `schema_code`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

const FUNCTIONS: &str = "../../../migrations/functions";

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed={FUNCTIONS}");
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?).join(FUNCTIONS);
    let mut files = Vec::new();
    for domain in fs::read_dir(&root)? {
        let domain = domain?.path();
        if domain.is_dir() {
            for file in fs::read_dir(domain)? {
                files.push(file?.path());
            }
        }
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "sql"));
    files.sort();
    let mut list = String::from("&[\n");
    for file in files {
        let path = file.strip_prefix(&root).map_err(io::Error::other)?;
        list += &format!("    ({:?}, include_str!({:?})),\n", path, file);
    }
    list += "]\n";
    let out = PathBuf::from(std::env::var("OUT_DIR").map_err(io::Error::other)?);
    fs::write(out.join("schema_code.rs"), list)
}
