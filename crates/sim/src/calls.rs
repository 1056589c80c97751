//! A process that dies at its k-th system call of a kind, or is told that the call failed.
//!
//! `strace` stands between the victim and its system. It sees every call of one kind that concerns one
//! kind of file, lets k - 1 of them pass in each thread, and then kills the process before the call is
//! made, or has the call answered with an error, once or from then on. So the moments just before and
//! just after everything that a database does to its directory are met for certain, which random kills
//! do not do, and errors come from where real ones do.
//!
//! A victim has so many transactions to do and ends by itself. What it left is compared as after any kill
//! ([`crate::kill`]); who was killed is started again on what it left, and killed once more, mostly while
//! it recovers. After an error the victim has to go on, where that is right, or to say what failed and end.
//!
//! The calls are counted thread by thread, and threads take their turns as the machine likes: of a
//! failing case the call, the file and k are known, and when the other threads came is not.

use crate::{
    ground::Firm,
    kill::{self, Any, Summary},
    ledger::{Expectations, mix},
    victim::{Honesty, Orders, REFUSED},
};
use std::{
    fmt, fs,
    io::{self, Error, ErrorKind},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

/// Which file a call concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A segment of the log.
    Log,
    /// Rows of a checkpoint.
    Layer,
    /// What names the layers.
    Manifest,
    /// The directory of all of them: what opens, renames and removes names it.
    Directory,
    /// What says that this is a database, and the file that locks it.
    Head,
    /// Where the directory lies.
    Folder,
}

/// What is done to the victim at the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    /// It is killed.
    Kill,
    /// The call fails.
    Fail {
        /// With which error.
        error: &'static str,
        /// And every one after it.
        ever: bool,
    },
}

/// What is done to the victim, and at which calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aim {
    /// What.
    pub blow: Blow,
    /// The name of the system call.
    pub call: &'static str,
    /// Which file it concerns.
    pub place: Place,
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Aim { blow, call, place } = self;
        match blow {
            Blow::Kill => write!(f, "killed at {call}")?,
            Blow::Fail { error, ever: false } => write!(f, "{error} once from {call}")?,
            Blow::Fail { error, ever: true } => write!(f, "{error} for ever from {call}")?,
        }
        write!(f, " of {place:?}")
    }
}

/// What a database does to its directory, and what it may answer to that besides success.
const CHANGES: [(&str, Place, &[&str]); 18] = [
    ("mkdir", Place::Folder, &["EIO", "ENOSPC"]),
    ("fsync", Place::Folder, &["EIO"]),
    ("openat", Place::Directory, &["EIO", "ENOSPC", "EMFILE"]),
    ("renameat", Place::Directory, &["EIO", "ENOSPC"]),
    ("unlinkat", Place::Directory, &["EIO"]),
    ("fsync", Place::Directory, &["EIO", "ENOSPC"]),
    ("ftruncate", Place::Head, &["EIO"]),
    ("pwrite64", Place::Head, &["EIO", "ENOSPC"]),
    ("fdatasync", Place::Head, &["EIO", "ENOSPC"]),
    ("fallocate", Place::Log, &["EIO", "ENOSPC"]),
    ("pwrite64", Place::Log, &["EIO", "ENOSPC"]),
    ("fdatasync", Place::Log, &["EIO", "ENOSPC"]),
    ("ftruncate", Place::Log, &["EIO"]),
    ("pwrite64", Place::Layer, &["EIO", "ENOSPC"]),
    ("fdatasync", Place::Layer, &["EIO", "ENOSPC"]),
    ("ftruncate", Place::Manifest, &["EIO"]),
    ("pwrite64", Place::Manifest, &["EIO", "ENOSPC"]),
    ("fdatasync", Place::Manifest, &["EIO", "ENOSPC"]),
];

/// What it reads. Being killed there is like being killed at the change before.
const READS: [(&str, Place); 4] = [
    ("getdents64", Place::Directory),
    ("pread64", Place::Head),
    ("pread64", Place::Log),
    ("pread64", Place::Manifest),
];

/// Every kind of call, and everything that is done there.
pub fn aims() -> Vec<Aim> {
    let kill = |&(call, place, _)| Aim {
        blow: Blow::Kill,
        call,
        place,
    };
    let fail = |call, place, error| {
        [false, true].map(|ever| Aim {
            blow: Blow::Fail { error, ever },
            call,
            place,
        })
    };
    let kills = CHANGES.iter().map(kill);
    let changes = CHANGES.iter().flat_map(|&(call, place, errors)| {
        errors
            .iter()
            .flat_map(move |&error| fail(call, place, error))
    });
    let reads = READS
        .iter()
        .flat_map(|&(call, place)| fail(call, place, "EIO"));
    kills.chain(changes).chain(reads).collect()
}

/// How a victim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It was killed at the call.
    Killed,
    /// The call failed, and it said so and ended.
    Refused,
    /// The call failed, and it did everything that it had to do.
    WentOn,
    /// It came to its end, and made no such call, or not so many.
    Missed,
}

/// A case after which something was not as it must be.
#[derive(Debug)]
pub struct Failure {
    /// Where it was hit.
    pub aim: Aim,
    /// At which of these calls.
    pub nth: u64,
    /// What decides its transactions and options.
    pub seed: u64,
    /// What was wrong.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure {
            aim,
            nth,
            seed,
            what,
        } = self;
        write!(f, "{aim}, call {nth}, seed {seed}: {what}")
    }
}

impl std::error::Error for Failure {}

/// Whether it can be done here.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no `strace` or no `timeout`; another if tracing is not allowed.
pub fn is_possible() -> io::Result<()> {
    for program in ["strace", "timeout"] {
        let mut try_it = Command::new(program);
        try_it.arg("--version").stdout(Stdio::null());
        try_it
            .status()
            .map_err(|error| Error::new(error.kind(), format!("{program}: {error}")))?;
    }
    let output = traced(["--trace=none"]).arg("true").output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::PermissionDenied,
            format!("strace: {}", told(&output)),
        )),
    }
}

/// Where the cases are played, and by whom.
#[derive(Debug)]
pub struct Rig<V> {
    /// A folder that is there and empty.
    pub folder: PathBuf,
    /// Clients of each victim.
    pub clients: u32,
    /// Transactions of each client.
    pub each: u64,
    /// Whether the victims tell the truth.
    pub honesty: Honesty,
    /// Makes the command that will be given its orders, and must run [`crate::victim::carry_out`] with them.
    pub victim: V,
}

/// Longer than any case takes.
const PATIENCE: Duration = Duration::from_secs(60);

impl<V: Fn() -> Command> Rig<V> {
    /// Has a victim hit at its `nth` call of `aim`, and looks at what it left. The database stays in the
    /// folder if something was wrong.
    ///
    /// # Errors
    ///
    /// If something was not as it must be.
    pub fn play(
        &self,
        aim: Aim,
        nth: u64,
        seed: u64,
        summary: &mut Summary,
    ) -> Result<End, Failure> {
        let orders = Orders {
            folder: self.folder.join("case"),
            seed,
            clients: self.clients,
            each: self.each,
            honesty: self.honesty,
            backups: None,
        };
        self.lives(&orders, (aim, nth), summary)
            .and_then(|end| {
                fs::remove_dir_all(&orders.folder)?;
                Ok(end)
            })
            .map_err(|fault| Failure {
                aim,
                nth,
                seed,
                what: fault.to_string(),
            })
    }

    fn lives(
        &self,
        orders: &Orders,
        (aim, nth): (Aim, u64),
        summary: &mut Summary,
    ) -> Result<End, Any> {
        fs::create_dir_all(&orders.folder)?;
        let mut expected = Expectations::default();
        let end = self.life(orders, (aim, nth), (&mut expected, summary))?;
        if end == End::Killed {
            // What recovers makes few calls.
            let again = 1 + mix(orders.seed ^ nth) % 4;
            self.life(orders, (aim, again), (&mut expected, summary))?;
        }
        Ok(end)
    }

    fn life(
        &self,
        orders: &Orders,
        (aim, nth): (Aim, u64),
        known: (&mut Expectations, &mut Summary),
    ) -> Result<End, Any> {
        let before = kill::slots(orders)?;
        let end = self.strike(orders, aim, nth)?;
        kill::look(orders, &before, &Firm, known)?;
        Ok(end)
    }

    /// Starts a victim under `strace`, and waits for its end.
    fn strike(&self, orders: &Orders, aim: Aim, nth: u64) -> Result<End, Any> {
        let notes = orders.folder.join("calls");
        let victim = (self.victim)();
        let mut command = traced(arguments(aim, nth, orders));
        command.arg("--output").arg(&notes).arg("--");
        command.arg(victim.get_program()).args(victim.get_args());
        orders.give(&mut command);
        let start = Instant::now();
        let output = command.stdin(Stdio::null()).output()?;
        if start.elapsed() >= PATIENCE {
            return Err("the victim came to no end".into());
        }
        // What threads write at once is not always text.
        let notes = fs::read(notes)?;
        let was_hit = notes
            .windows(b"(INJECTED)".len())
            .any(|words| words == b"(INJECTED)");
        match (aim.blow, output.status.signal(), output.status.code()) {
            (Blow::Kill, Some(9), _) => Ok(End::Killed),
            (Blow::Fail { .. }, _, Some(REFUSED)) if was_hit => Ok(End::Refused),
            (Blow::Fail { .. }, _, Some(0)) if was_hit => Ok(End::WentOn),
            (_, _, Some(0)) => Ok(End::Missed),
            _ => Err(format!("the victim: {}: {}", output.status, told(&output)).into()),
        }
    }
}

/// `strace` with its first arguments, ended if it takes too long.
fn traced(first: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>) -> Command {
    let mut command = Command::new("timeout");
    let patience = PATIENCE.as_secs().to_string();
    command.args(["--signal=KILL", &patience, "strace", "--follow-forks"]);
    command.arg("--quiet=all").args(first).stdin(Stdio::null());
    command
}

/// What tells `strace` where to hit.
fn arguments(aim: Aim, nth: u64, orders: &Orders) -> Vec<String> {
    let Aim { blow, call, place } = aim;
    let what = match blow {
        Blow::Kill => format!("signal=KILL:when={nth}"),
        Blow::Fail { error, ever } => {
            format!("error={error}:when={nth}{}", if ever { "+" } else { "" })
        }
    };
    let paths = paths(place, orders).into_iter();
    // Other calls are not stopped at. A signal is lost then: strace 6.1 gives it to nobody.
    let quick = (blow != Blow::Kill).then(|| "--seccomp-bpf".to_owned());
    [format!("--trace={call}"), format!("--inject={call}:{what}")]
        .into_iter()
        .chain(quick)
        .chain(paths.map(|path| format!("--trace-path={}", path.display())))
        .collect()
}

/// The files of a kind, those that are not there yet, too.
fn paths(place: Place, orders: &Orders) -> Vec<PathBuf> {
    // Segments of `Options::tiny` hold so many bytes of log; numbers of layers count up.
    const SEGMENT: u64 = 60 << 10;
    const SEGMENTS: u64 = 12;
    const LAYERS: u64 = 60;
    let directory = orders.database();
    let named = |names: &[&str]| names.iter().map(|name| directory.join(name)).collect();
    let numbered = |kind: &str, count: u64, step: u64| {
        let name = |number: u64| format!("{kind}-{:016x}", number * step);
        (0..count).map(|n| directory.join(name(n))).collect()
    };
    match place {
        Place::Log => numbered("log", SEGMENTS, SEGMENT),
        Place::Layer => numbered("layer", LAYERS, 1),
        Place::Manifest => named(&["checkpoint", "checkpoint.new"]),
        Place::Head => named(&["foxton", "foxton.new", "lock"]),
        Place::Folder => vec![orders.folder.clone(), directory],
        Place::Directory => vec![directory],
    }
}

fn told(output: &Output) -> String {
    let lines = String::from_utf8_lossy(&output.stderr);
    lines.lines().last().unwrap_or_default().to_owned()
}

/// Where a rig plays: a new folder in `parent`, or in the system's temporary one. What else is in `parent` stays.
///
/// # Errors
///
/// If it cannot be made.
pub fn folder(parent: Option<PathBuf>) -> io::Result<PathBuf> {
    let name = format!("foxton-calls-{}", std::process::id());
    let folder = parent.unwrap_or_else(std::env::temp_dir).join(name);
    fs::create_dir_all(&folder)?;
    Path::canonicalize(&folder)
}
