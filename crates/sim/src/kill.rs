//! Kill and restart: a process is killed at a random moment, and its promises are checked.
//!
//! A cycle starts a victim, waits a random time, kills it with `SIGKILL` and reads the notebook.
//! Then it opens the database, compares, closes it, and opens it again with the same result. Every
//! second database has secondary indexes, declared at each opening, and each index is compared with
//! its table. The tables of every second database are paged, with large values among their rows.
//! Every fourth kill comes within the first milliseconds, while the victim still
//! recovers from the kill before. After a few cycles a new database begins, with other options, so
//! that creation and the first load are killed too.
//!
//! Each cycle draws from (seed, cycle), so these two name a failing cycle. The moment of the kill
//! depends on the machine and cannot be repeated exactly.

use crate::{
    ground::Ground,
    ledger::{Contents, Expectations, check, is_abandoned, mix},
    load,
    notebook::{Notebook, Slot},
    shelf::{Known, Shelf},
    victim::{self, Honesty, Orders, durability},
};
use std::{
    error, fmt, fs, io,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Longest life of a victim that is killed early: about as long as opening takes.
pub const YOUTH: Duration = Duration::from_millis(20);

/// A victim that takes this long to begin its transactions is stuck.
const PATIENCE: Duration = Duration::from_mins(5);

/// Parameters of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Number of kills.
    pub cycles: u64,
    /// Seed of every cycle.
    pub seed: u64,
    /// Number of clients of a victim.
    pub clients: u32,
    /// A victim is killed when it has begun at most this many transactions. Every fourth is killed
    /// early, within [`YOUTH`], whatever it has done.
    pub transactions: u64,
    /// Number of cycles until a new database begins.
    pub fresh: u64,
    /// Whether the victims record the truth.
    pub honesty: Honesty,
    /// Whether they take backups, too, and record the truth about those.
    pub backups: Option<Honesty>,
    /// Whether the tables are paged; those of every second database if `None`.
    pub is_paged: Option<bool>,
}

impl Plan {
    /// Returns a plan of `cycles` kills, with default values for the rest.
    pub fn new(cycles: u64, seed: u64) -> Plan {
        Plan {
            cycles,
            seed,
            clients: 8,
            transactions: 200,
            fresh: 20,
            honesty: Honesty::Honest,
            backups: None,
            is_paged: None,
        }
    }
}

/// Counts of a run.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Number of kills.
    pub kills: u64,
    /// Kills before the victim's load was acknowledged.
    pub before_load: u64,
    /// Kills before any client of that victim had begun.
    pub before_clients: u64,
    /// Commits that were acknowledged and had to survive; every one was found.
    pub acknowledged: u64,
    /// Commits that were pending at the kill, or promised nothing, and were found.
    pub pending_found: u64,
    /// The same, but not found.
    pub pending_lost: u64,
    /// Transactions rolled back by their client; none was found.
    pub rolled_back: u64,
    /// Backups that were begun and found whole, with everything that they must have.
    pub backups_whole: u64,
    /// Backups that were begun and are not whole; each was refused as such.
    pub backups_refused: u64,
    /// Backups from before the last kill that were restored again.
    pub backups_again: u64,
    /// Openings of a database with secondary indexes, each of which agreed with its table.
    pub indexed_opens: u64,
    /// Openings of a database with paged tables.
    pub paged_opens: u64,
    /// Notes that these openings have found whole, most of them large values.
    pub notes: u64,
    /// Longest time of one opening of the database.
    pub slowest_open: Duration,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |what: &str, count: u64| writeln!(f, "{what:<34} {count:>10}");
        line("kills", self.kills)?;
        line("  before the load was acknowledged", self.before_load)?;
        line("  later, before any client began", self.before_clients)?;
        line("acknowledged commits, all found", self.acknowledged)?;
        line("pending or unpromised, found", self.pending_found)?;
        line("pending or unpromised, not found", self.pending_lost)?;
        line("rolled back, none found", self.rolled_back)?;
        if self.backups_whole + self.backups_refused > 0 {
            line("backups begun, whole", self.backups_whole)?;
            line("backups begun, not whole, refused", self.backups_refused)?;
            line("  restored again after a kill", self.backups_again)?;
        }
        line("openings with indexes, all right", self.indexed_opens)?;
        line("openings with paged tables", self.paged_opens)?;
        line("  whole notes in them", self.notes)?;
        let slowest = self.slowest_open.as_millis();
        write!(f, "{:<34} {slowest:>7} ms", "slowest open")
    }
}

/// A cycle with a wrong result.
#[derive(Debug)]
pub struct Failure {
    /// Number of the cycle.
    pub cycle: u64,
    /// Seed of the plan.
    pub seed: u64,
    /// Description of the faults.
    pub faults: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "cycle {} of seed {}:", self.cycle, self.seed)?;
        self.faults
            .iter()
            .try_for_each(|fault| writeln!(f, "  {fault}"))
    }
}

impl error::Error for Failure {}

/// Runs `plan` in `folder`, on databases on `ground`. `victim` makes the command that gets the
/// orders and must run [`victim::run`] with them; `progress` is called after each cycle.
///
/// # Errors
///
/// The first cycle with a wrong result. Its database stays in `folder`.
pub fn run(
    plan: &Plan,
    folder: &Path,
    ground: &mut dyn Ground,
    victim: impl Fn() -> Command,
    mut progress: impl FnMut(&Summary),
) -> Result<Summary, Failure> {
    let mut summary = Summary::default();
    let mut expected = Expectations::default();
    let mut shelf = Shelf::default();
    for cycle in 0..plan.cycles {
        let orders = Orders {
            folder: folder.join(format!("database-{}", cycle / plan.fresh)),
            seed: mix(plan.seed ^ mix(cycle / plan.fresh)),
            clients: plan.clients,
            each: u64::MAX,
            honesty: plan.honesty,
            backups: plan.backups,
            is_paged: plan.is_paged.unwrap_or(cycle / plan.fresh % 2 == 1),
        };
        if cycle.is_multiple_of(plan.fresh) {
            expected = Expectations::default();
            shelf = Shelf::default();
        }
        let last = (cycle + 1).is_multiple_of(plan.fresh) || cycle + 1 == plan.cycles;
        let first = cycle.is_multiple_of(plan.fresh);
        prepare(first, &orders, ground)
            .and_then(|()| {
                let known = (&mut expected, &mut shelf, &mut summary);
                one(plan, cycle, &orders, ground, victim(), known)
            })
            .and_then(|()| {
                if last {
                    ground.clear()?;
                    Ok(fs::remove_dir_all(&orders.folder)?)
                } else {
                    Ok(())
                }
            })
            .map_err(|fault| match fault.downcast::<Faults>() {
                Ok(faults) => Failure {
                    cycle,
                    seed: plan.seed,
                    faults: faults.0,
                },
                Err(other) => Failure {
                    cycle,
                    seed: plan.seed,
                    faults: vec![other.to_string()],
                },
            })?;
        progress(&summary);
    }
    Ok(summary)
}

/// Result of [`check`].
#[derive(Debug)]
pub(crate) struct Faults(Vec<String>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl error::Error for Faults {}

pub(crate) type Any = Box<dyn error::Error + Send + Sync>;

fn prepare(first: bool, orders: &Orders, ground: &mut dyn Ground) -> Result<(), Any> {
    if first {
        fs::create_dir_all(&orders.folder)?;
        ground.prepare(orders)?;
    }
    Ok(())
}

fn one(
    plan: &Plan,
    cycle: u64,
    orders: &Orders,
    ground: &mut dyn Ground,
    command: Command,
    (expected, shelf, summary): (&mut Expectations, &mut Shelf, &mut Summary),
) -> Result<(), Any> {
    let before = slots(orders)?;
    kill(orders, command, &Death::of(plan, cycle), &before)?;
    ground.cut()?;
    let after = slots(orders)?;
    let known = Known {
        settled: expected,
        before: &before,
        after: &after,
    };
    let backups = shelf.look(orders, &known)?;
    summary.backups_whole += backups.whole;
    summary.backups_refused += backups.refused;
    summary.backups_again += backups.again;
    look(orders, &before, ground, (expected, summary))
}

/// Compares what the dead victim of `orders` recorded since `before` with what it left.
pub(crate) fn look(
    orders: &Orders,
    before: &[Slot],
    ground: &dyn Ground,
    (expected, summary): (&mut Expectations, &mut Summary),
) -> Result<(), Any> {
    let notebook = Notebook::open(&orders.notebook())?;
    let after = slots(orders)?;
    summary.kills += 1;
    summary.before_load += u64::from(!notebook.is_loaded()?);
    summary.before_clients += u64::from(notebook.is_loaded()? && before == after);
    expected.loaded |= notebook.is_loaded()?;
    expect(before, &after, ground, expected, summary);

    let found = reopen(orders, summary)?;
    check(orders.seed, orders.scale(), expected, &found).map_err(Faults)?;
    if reopen(orders, summary)? != found {
        return Err("opening again, without a crash in between, found other contents".into());
    }
    let pending: usize = expected
        .clients
        .values()
        .map(|client| client.may.len())
        .sum();
    let known: usize = expected
        .clients
        .values()
        .map(|client| client.must.len())
        .sum();
    let surprises = (found.history.len() - known) as u64;
    summary.pending_found += surprises;
    summary.pending_lost += pending as u64 - surprises;
    expected.settle(&found);
    Ok(())
}

/// When a victim is killed.
enum Death {
    /// This long after it was started.
    After(Duration),
    /// When it has begun this many transactions.
    Having(u64),
}

impl Death {
    /// Returns when the victim of `cycle` is killed: every fourth early.
    fn of(plan: &Plan, cycle: u64) -> Death {
        let draw = mix(mix(plan.seed) ^ cycle);
        if draw.is_multiple_of(4) {
            Death::After(YOUTH.mul_f64((mix(draw) >> 11) as f64 / (1u64 << 53) as f64))
        } else {
            Death::Having(1 + mix(draw) % plan.transactions.max(1))
        }
    }

    /// Waits until then, or until `victim` has died by itself.
    fn wait(&self, orders: &Orders, before: &[Slot], victim: &mut Child) -> Result<(), Any> {
        let begun = |slots: &[Slot]| slots.iter().map(|slot| slot.begun).sum::<u64>();
        let count = match *self {
            Death::After(life) => {
                thread::sleep(life);
                return Ok(());
            }
            Death::Having(count) => begun(before) + count,
        };
        let start = Instant::now();
        while begun(&slots(orders)?) < count && victim.try_wait()?.is_none() {
            if start.elapsed() > PATIENCE {
                victim.kill()?;
                return Err(format!("the victim has made no progress for {PATIENCE:?}").into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// Lets the victim run for its time, and kills it.
fn kill(orders: &Orders, mut command: Command, death: &Death, before: &[Slot]) -> Result<(), Any> {
    orders.give(&mut command);
    let mut victim = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    death.wait(orders, before, &mut victim)?;
    victim.kill()?;
    let output = victim.wait_with_output()?;
    match output.status.signal() {
        Some(9) => Ok(()),
        _ => {
            let told = String::from_utf8_lossy(&output.stderr);
            Err(format!(
                "the victim ended before it was killed: {}: {told}",
                output.status
            )
            .into())
        }
    }
}

/// Reads the record of each client.
pub(crate) fn slots(orders: &Orders) -> io::Result<Vec<Slot>> {
    let notebook = Notebook::open(&orders.notebook())?;
    (0..orders.clients)
        .map(|client| notebook.client(client))
        .collect()
}

/// Adds what the last victim recorded to what is expected.
fn expect(
    before: &[Slot],
    after: &[Slot],
    ground: &dyn Ground,
    expected: &mut Expectations,
    summary: &mut Summary,
) {
    for (client, (before, after)) in (0..).zip(before.iter().zip(after)) {
        let expectation = expected.clients.entry(client).or_default();
        for n in before.begun + 1..=after.begun {
            let promised = ground.keeps(durability(client)) && n <= after.acknowledged;
            if is_abandoned(n) {
                summary.rolled_back += 1;
            } else if promised {
                summary.acknowledged += 1;
                expectation.must.insert(n);
            } else {
                expectation.may.insert(n);
            }
        }
    }
}

/// Opens, reads everything, and closes.
fn reopen(orders: &Orders, summary: &mut Summary) -> Result<Contents, Any> {
    let start = Instant::now();
    let db = victim::open(&orders.database(), orders)?;
    summary.slowest_open = summary.slowest_open.max(start.elapsed());
    let contents = load::read(&db)?;
    summary.paged_opens += u64::from(orders.is_paged);
    summary.notes += contents.notes.len() as u64;
    if victim::has_indexes(orders.seed) {
        let faults = load::check_indexes(&db, &contents)?;
        if !faults.is_empty() {
            return Err(Faults(faults).into());
        }
        summary.indexed_opens += 1;
    }
    Ok(contents)
}
