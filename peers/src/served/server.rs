//! A server of our own: its files in a folder that is deleted, reached by a socket in it and by
//! nothing else.

use crate::Outcome;
use std::{
    env, fs,
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// How long a server may take to answer.
const STARTING: Duration = Duration::from_secs(120);
const AGAIN: Duration = Duration::from_millis(100);
/// The user that a server runs as if this process is root, because PostgreSQL refuses to run as
/// root.
const NOBODY: u32 = 65_534;

/// The shell ends the server when it can read no more: when we say so, and also when we are killed.
const GUARD: &str = r#""$@" & server=$!; read -r _; kill -TERM "$server"; wait "$server""#;

/// A folder for a server, and what runs in it.
pub(crate) struct Server {
    child: Option<Child>,
    folder: TempDir,
}

impl Server {
    /// An empty folder under `parent` that belongs to whom the server runs as.
    pub(crate) fn new(parent: &Path) -> Outcome<Server> {
        let folder = tempfile::Builder::new()
            .prefix("foxton-served-")
            .tempdir_in(parent)?;
        if is_administrator() {
            chown(folder.path(), Some(NOBODY), Some(NOBODY))?;
        }
        Ok(Server {
            child: None,
            folder,
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a command to its end.
    pub(crate) fn prepare(&self, program: &Path, arguments: &[String]) -> Outcome {
        let mut command = Command::new(program);
        let output = self.owned(command.args(arguments)).output()?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                Err(format!("{}: {said}", program.display()).into())
            }
        }
    }

    /// Starts the server, and waits until it answers.
    pub(crate) fn start(
        &mut self,
        program: &Path,
        arguments: &[String],
        answers: impl Fn() -> Outcome,
    ) -> Outcome {
        let said = fs::File::create(self.folder().join("said"))?;
        let mut command = Command::new("sh");
        command
            .args(["-c", GUARD, "sh"])
            .arg(program)
            .args(arguments);
        command
            .stdin(Stdio::piped())
            .stdout(said.try_clone()?)
            .stderr(said);
        self.child = Some(self.owned(&mut command).spawn()?);
        let began = Instant::now();
        while let Err(error) = answers() {
            if began.elapsed() > STARTING {
                let said = fs::read_to_string(self.folder().join("said")).unwrap_or_default();
                return Err(
                    format!("{} does not answer ({error}): {said}", program.display()).into(),
                );
            }
            thread::sleep(AGAIN);
        }
        Ok(())
    }

    fn owned<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        if is_administrator() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.current_dir(self.folder())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.stdin.take());
            // Nothing is to be saved: the folder goes as well.
            _ = child.wait();
        }
    }
}

fn is_administrator() -> bool {
    rustix::process::getuid().is_root()
}

/// A program, in the path or where Debian has such.
pub(crate) fn program(name: &str) -> Outcome<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
    folders.push("/usr/sbin".into());
    if let Ok(versions) = fs::read_dir("/usr/lib/postgresql") {
        folders.extend(versions.flatten().map(|version| version.path().join("bin")));
    }
    let found = folders
        .iter()
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    found.ok_or_else(|| format!("{name} is not there: peers/install.sh servers").into())
}
