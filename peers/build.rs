//! The engines that come with the system: compiles the shim over one, and links both.

use std::env;

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
    if env::var_os("CARGO_FEATURE_ROCKSDB").is_some() {
        println!("cargo::rustc-link-lib=rocksdb");
    }
}
