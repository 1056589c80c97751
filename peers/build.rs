//! Berkeley DB, which comes with the system: compiles the shim over it, and links both.

fn main() {
    println!("cargo::rerun-if-changed=native");
    #[cfg(feature = "berkeley")]
    {
        cc::Build::new()
            .file("native/berkeley.c")
            .opt_level(3)
            .compile("peers_berkeley");
        println!("cargo::rustc-link-lib=db-5.3");
    }
}
