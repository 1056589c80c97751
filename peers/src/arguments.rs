//! Arguments that several commands share.

use crate::Outcome;
use std::path::{Path, PathBuf};

const MEMORY: &str = "/dev/shm";

/// A number of clients that can be measured.
pub(crate) fn clients(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=4096).contains(count));
    count.ok_or_else(|| "a number from 1 to 4096 is wanted".to_owned())
}

/// A time in which something can be counted.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let time = text
        .parse()
        .ok()
        .filter(|time| (0.01..=3600.0).contains(time));
    time.ok_or_else(|| "a number of seconds from 0.01 to 3600 is wanted".to_owned())
}

/// Where databases lie: where it was said, or in memory where nothing is synced.
pub(crate) fn folder(said: Option<&Path>, synced: bool) -> PathBuf {
    match said {
        Some(folder) => folder.to_owned(),
        None if !synced && Path::new(MEMORY).is_dir() => PathBuf::from(MEMORY),
        None => std::env::temp_dir(),
    }
}

/// Each of many connections has files of its own: as many as the process may ask for.
pub(crate) fn more_files() -> Outcome {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    Ok(setrlimit(Resource::Nofile, most)?)
}
