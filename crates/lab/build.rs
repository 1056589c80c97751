//! Records which compiler and which commit this laboratory was built from, because every result
//! names them. Without git, or outside a clone, the commit is "unknown".

use std::process::Command;

fn main() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let compiler = output(&rustc, &["--version"]).unwrap_or_else(|| "unknown".into());
    let commit = output("git", &["describe", "--always", "--dirty", "--exclude=*"]);
    println!("cargo::rustc-env=FOXTON_LAB_RUSTC={compiler}");
    println!(
        "cargo::rustc-env=FOXTON_LAB_COMMIT={}",
        commit.unwrap_or_else(|| "unknown".into())
    );
    println!("cargo::rerun-if-changed=src");
    // The log of HEAD changes with every commit and checkout.
    if let Some(path) = output("git", &["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={path}");
    }
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
