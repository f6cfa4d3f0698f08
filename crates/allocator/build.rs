//! Location of tcmalloc: the system's packages have it. If they are unpacked elsewhere, TCMALLOC_DIR says
//! where.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TCMALLOC_DIR");
    if std::env::var_os("CARGO_FEATURE_TCMALLOC").is_some() {
        if let Ok(folder) = std::env::var("TCMALLOC_DIR") {
            println!("cargo::rustc-link-search=native={folder}");
        }
        println!("cargo::rustc-link-lib=dylib=tcmalloc_minimal");
    }
}
