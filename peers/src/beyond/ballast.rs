//! Ballast: memory that is taken, so that every engine has the same.
//!
//! Foxton takes a limit and keeps pages itself; LMDB has what the page cache has. Ballast is a file
//! in a file system of memory, which the system cannot reclaim without swap. It leaves Foxton its
//! limit in frames and `spare` as page cache, and LMDB the sum of both as page cache. The file has
//! no name, so the system frees it however this program ends.

use std::{
    fmt,
    fs::{self, File},
    io::Write,
    path::Path,
};

use crate::Outcome;

/// Bytes written between two looks at the free memory.
const STEP: usize = 16 << 20;

/// Why the engines cannot be given the same memory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BallastError {
    /// The machine has less free memory than an engine needs.
    TooLittleMemory { free: u64, needed: u64 },
    /// There is swap, so ballast would not stay in memory.
    Swap { bytes: u64 },
    /// The system does not say how much memory is free.
    Unknown,
    /// The file system of memory has not enough space.
    TooLittleSpace { left: u64, needed: u64 },
}

impl fmt::Display for BallastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BallastError::TooLittleMemory { free, needed } => write!(
                f,
                "{} MiB of memory are free and {} MiB are needed; stop other programs, or measure \
                 less with --data",
                free >> 20,
                needed >> 20
            ),
            BallastError::Swap { bytes } => write!(
                f,
                "{} MiB of swap are on, so ballast would not stay in memory; turn it off with \
                 swapoff -a",
                bytes >> 20
            ),
            BallastError::Unknown => {
                f.write_str("the system does not say in /proc/meminfo how much memory is free")
            }
            BallastError::TooLittleSpace { left, needed } => write!(
                f,
                "the ballast's file system is full, and {} MiB are free where {} are wanted; name \
                 another file system of memory with --ballast",
                left >> 20,
                needed >> 20
            ),
        }
    }
}

impl std::error::Error for BallastError {}

/// Bytes that the system has of this kind.
fn meminfo(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    let kib = line.split_whitespace().nth(1)?.parse::<u64>().ok()?;
    Some(kib << 10)
}

/// Bytes that programs may still take, the page cache included.
pub(crate) fn free() -> Result<u64, BallastError> {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    meminfo(&text, "MemAvailable:").ok_or(BallastError::Unknown)
}

/// Refuses a machine on which no ballast can leave `needed` bytes.
pub(crate) fn check(meminfo_text: &str, needed: u64) -> Result<(), BallastError> {
    let free = meminfo(meminfo_text, "MemAvailable:").ok_or(BallastError::Unknown)?;
    let swap = meminfo(meminfo_text, "SwapTotal:").unwrap_or(0);
    match () {
        () if swap > 0 => Err(BallastError::Swap { bytes: swap }),
        () if free < needed => Err(BallastError::TooLittleMemory { free, needed }),
        () => Ok(()),
    }
}

/// Memory that is taken until this is dropped.
pub(crate) struct Ballast {
    _file: File,
    pub(crate) bytes: u64,
}

impl Ballast {
    /// Takes memory by a file in `folder` until `leave` bytes are free.
    ///
    /// # Errors
    ///
    /// A [`BallastError`], or that of the file system.
    pub(crate) fn leaving(
        folder: &Path,
        leave: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Outcome<Ballast> {
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        check(&text, leave)?;
        let mut file = tempfile::tempfile_in(folder)?;
        let (step, mut bytes) = (vec![1; STEP], 0);
        loop {
            let left = free()?;
            let Some(more) = left.checked_sub(leave).filter(|&more| more > 0) else {
                break;
            };
            let count = more.min(STEP as u64) as usize;
            if let Err(error) = file.write_all(&step[..count]) {
                if error.kind() == std::io::ErrorKind::StorageFull {
                    let needed = leave;
                    return Err(BallastError::TooLittleSpace { left, needed }.into());
                }
                return Err(error.into());
            }
            bytes += count as u64;
            progress(bytes);
        }
        Ok(Ballast { _file: file, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_swap_or_too_little_memory_is_refused() {
        let text = |free: u64, swap: u64| {
            format!("MemTotal: 9 kB\nMemAvailable: {free} kB\nSwapTotal: {swap} kB\n")
        };
        assert_eq!(check(&text(2_048, 0), 1 << 20), Ok(()));
        let (free, needed) = (512 << 10, 1 << 20);
        let refused = check(&text(512, 0), needed);
        assert_eq!(refused, Err(BallastError::TooLittleMemory { free, needed }));
        let refused = check(&text(2_048, 1), needed);
        assert_eq!(refused, Err(BallastError::Swap { bytes: 1_024 }));
        assert_eq!(check("", needed), Err(BallastError::Unknown));
    }

    #[test]
    fn ballast_takes_memory_until_so_much_is_left() {
        let folder = Path::new("/dev/shm");
        let most = 64 << 20;
        // Little, and only where it is sure to fit.
        let Ok(free) = free() else { return };
        if free < 1 << 30 || check(&fs::read_to_string("/proc/meminfo").unwrap(), 0).is_err() {
            return;
        }
        let ballast = Ballast::leaving(folder, free - most, &mut |_| ()).unwrap();
        assert!(ballast.bytes > 0);
    }
}
