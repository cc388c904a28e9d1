//! Lists the files of `migrations/functions` for `schema_code`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

const FUNCTIONS: &str = "../../../migrations/functions";

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed={FUNCTIONS}");
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?).join(FUNCTIONS);
    let revision = fs::read_to_string(root.join("REVISION"))?;
    let revision = revision.split_whitespace().next().unwrap_or_default().parse::<i64>();
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
    let mut code = format!("SchemaCode {{ revision: {}, files: &[\n", revision.map_err(io::Error::other)?);
    for file in files {
        let path = file.strip_prefix(&root).map_err(io::Error::other)?;
        code += &format!("    ({path:?}, include_str!({file:?})),\n");
    }
    code += "] }\n";
    let out = PathBuf::from(std::env::var("OUT_DIR").map_err(io::Error::other)?);
    fs::write(out.join("schema_code.rs"), code)
}
