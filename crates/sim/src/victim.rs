//! The process that is killed: its clients run for ever, or a fixed number of transactions.
//!
//! A client's promise depends on its number, so that all three promises run beside each other: of
//! four clients two commit *sync*, one *buffered*, one with durability *none*.

use crate::{
    backups::Backups,
    ledger::{Scale, mix},
    load,
    notebook::Notebook,
};
use foxton::{
    Database, Durability, LatchKind, LockInheritance, LockManagerKind, Options, TableComponent,
    VictimPolicy,
};
use foxton_store::paged::page::PageSize;
use foxton_store::paged::pool::BufferPool;
use std::{
    env, error,
    ffi::OsString,
    fmt, io,
    path::{Path, PathBuf},
    process::{self, Command},
    thread,
    time::Duration,
};

/// Orders to a victim.
#[derive(Debug, Clone)]
pub struct Orders {
    /// Folder of the database and the notebook.
    pub folder: PathBuf,
    /// Seed of every transaction.
    pub seed: u64,
    /// Number of clients, each on a thread.
    pub clients: u32,
    /// Number of transactions of each client; then the database is closed. [`u64::MAX`] to run
    /// until killed.
    pub each: u64,
    /// When a commit is recorded in the notebook.
    pub honesty: Honesty,
    /// Whether it takes backups meanwhile, and when it records one as done.
    pub backups: Option<Honesty>,
    /// Whether its tables are paged, with large values among their rows.
    pub is_paged: bool,
}

/// When a client records that its commit was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Honesty {
    /// After the acknowledgement.
    Honest,
    /// Before it commits: an injected fault, to see that the check finds it.
    Early,
    /// After the acknowledgement, but nothing was ever synced for it: an injected fault for power
    /// cuts.
    Unsynced,
}

impl Honesty {
    fn name(self) -> &'static str {
        match self {
            Honesty::Honest => "honest",
            Honesty::Early => "early",
            Honesty::Unsynced => "unsynced",
        }
    }

    fn named(name: &str) -> Option<Honesty> {
        let all = [Honesty::Honest, Honesty::Early, Honesty::Unsynced];
        all.into_iter().find(|honesty| honesty.name() == name)
    }
}

/// In place of a name.
const NO_BACKUPS: &str = "none";
/// Components of tables.
const PAGED: &str = "paged";
const RESIDENT: &str = "resident";

impl Orders {
    /// Returns the path of the database.
    pub fn database(&self) -> PathBuf {
        self.folder.join("database")
    }

    /// Returns the path of the notebook.
    pub fn notebook(&self) -> PathBuf {
        self.folder.join("notebook")
    }

    /// Returns where backups and their list are.
    pub fn backups(&self) -> Backups {
        Backups {
            database: self.database(),
            shelf: self.folder.join("backups"),
            list: self.folder.join("backups-begun"),
        }
    }

    /// Adds the arguments that give these orders to another process.
    pub fn give(&self, command: &mut Command) {
        command
            .arg(&self.folder)
            .arg(self.seed.to_string())
            .arg(self.clients.to_string())
            .arg(self.each.to_string())
            .arg(self.honesty.name())
            .arg(self.backups.map_or(NO_BACKUPS, Honesty::name))
            .arg(self.tables());
    }

    /// Returns the name of the component of the tables.
    fn tables(&self) -> &'static str {
        match self.is_paged {
            true => PAGED,
            false => RESIDENT,
        }
    }

    /// Returns the scale of the load.
    pub fn scale(&self) -> Scale {
        match self.is_paged {
            true => Scale::WITH_NOTES,
            false => Scale::SMALL,
        }
    }

    /// Reads the arguments that [`give`](Self::give) wrote. `None` if they are others.
    pub fn take(mut arguments: impl Iterator<Item = OsString>) -> Option<Orders> {
        let folder = PathBuf::from(arguments.next()?);
        let mut text = || arguments.next()?.into_string().ok();
        Some(Orders {
            folder,
            seed: text()?.parse().ok()?,
            clients: text()?.parse().ok()?,
            each: text()?.parse().ok()?,
            honesty: Honesty::named(&text()?)?,
            backups: match text()?.as_str() {
                NO_BACKUPS => None,
                name => Some(Honesty::named(name)?),
            },
            is_paged: match text()?.as_str() {
                PAGED => true,
                RESIDENT => false,
                _ => return None,
            },
        })
    }
}

/// Returns the durability of a client's commits.
pub fn durability(client: u32) -> Durability {
    match client % 4 {
        2 => Durability::Buffered,
        3 => Durability::None,
        _ => Durability::Sync,
    }
}

/// Returns the options of every database here. Everything is small. `seed` draws a lock manager, a
/// latch, a victim policy and a distance of checkpoints, because none of them may matter.
pub fn options(seed: u64) -> Options {
    let draw = |what: u64, count: usize| mix(mix(seed) ^ what) as usize % count;
    let mut options = Options::tiny();
    options.lock_manager = LockManagerKind::ALL[draw(1, LockManagerKind::ALL.len())];
    options.lock_inheritance = LockInheritance::ALL[draw(4, LockInheritance::ALL.len())];
    options.latch = LatchKind::PLAIN[draw(2, LatchKind::PLAIN.len())];
    options.lock_threads = draw(4, 2) == 1;
    // Mostly the default, because that is the harder case.
    options.early_release = draw(5, 4) != 0;
    options.victim = VictimPolicy::ALL[draw(3, VictimPolicy::ALL.len())];
    // One checkpoint after the other, now and then, or never.
    options.checkpoint_log_bytes = [4 << 10, 16 << 10, u64::MAX][draw(6, 3)];
    options
}

/// Fewest frames that a pool may have.
pub const FRAMES: usize = 16;

/// Makes pages of 1 KiB, and memory for so many of them.
pub fn set_small_pages(options: &mut Options, frames: usize) {
    options.page_bytes = 1 << 10;
    options.page_memory = BufferPool::bytes_of(frames, frames, PageSize::MIN);
}

/// True if the tables of a victim with this `seed` have indexes: every second.
pub fn has_indexes(seed: u64) -> bool {
    mix(mix(seed) ^ 7).is_multiple_of(2)
}

/// Returns [`options`], with the tables of a victim and the indexes of one that has some. A pool
/// has few frames, so pages are written and evicted all the time.
fn options_of_victims(orders: &Orders) -> Options {
    let mut options = options(orders.seed);
    if orders.is_paged {
        options.component = TableComponent::Paged;
        let more = mix(orders.seed ^ 9) as usize % (2 * FRAMES);
        set_small_pages(&mut options, 2 * FRAMES + more);
    }
    if has_indexes(orders.seed) {
        load::declare(&mut options);
    }
    options
}

/// Opens the database at `path` as the victim of `orders` and its checkers do.
///
/// # Errors
///
/// Any error of the database.
pub fn open(path: &Path, orders: &Orders) -> foxton::Result<Database> {
    Database::open_with(path, options_of_victims(orders))
}

/// Exit status of a victim whose device failed and that reported it.
pub const REFUSED: i32 = 3;

/// Error codes of a database whose device failed.
pub const DEVICE_CODES: [&str; 3] = ["io", "device_full", "poisoned"];

/// First argument with which a program becomes a victim.
const FLAG: &str = "--victim";

/// Returns a function that makes the command to start this program as a victim. The program must
/// begin with [`taken`].
///
/// # Errors
///
/// If this program does not know its own path.
pub fn of_myself() -> io::Result<impl Fn() -> Command> {
    let me = env::current_exe()?;
    Ok(move || {
        let mut command = Command::new(&me);
        command.arg(FLAG);
        command
    })
}

/// If this process was started as a victim ([`of_myself`]), carries out its orders and returns its
/// exit status.
pub fn taken() -> Option<i32> {
    let mut arguments = env::args_os().skip(1);
    (arguments.next()? == FLAG).then(|| carry_out(Orders::take(arguments)))
}

/// Carries out `orders`. Returns the exit status: 0; [`REFUSED`] if the device failed and the
/// database reported it; or 1 for everything else.
pub fn carry_out(orders: Option<Orders>) -> i32 {
    let Some(orders) = orders else {
        eprintln!(
            "a victim's orders: FOLDER SEED CLIENTS EACH honest|early|unsynced none|honest|early \
             resident|paged"
        );
        return 1;
    };
    let Err(error) = run(&orders, orders.scale()) else {
        return 0;
    };
    eprintln!("{orders}: {error}");
    match error.downcast_ref::<foxton::Error>() {
        Some(error) if DEVICE_CODES.contains(&error.code()) => REFUSED,
        _ => 1,
    }
}

/// Runs until killed, or until every client has run its transactions.
///
/// # Errors
///
/// Any error.
pub fn run(orders: &Orders, scale: Scale) -> Result<(), Box<dyn error::Error + Send + Sync>> {
    let notebook = Notebook::open(&orders.notebook())?;
    let mut options = options_of_victims(orders);
    if orders.honesty == Honesty::Unsynced {
        options.sync_interval = Duration::MAX;
    }
    let db = Database::open_with(orders.database(), options)?;
    load::load(&db, scale)?;
    notebook.acknowledge_load()?;
    let run = |client| run_client(orders, &db, &notebook, client, scale);
    thread::scope(|scope| {
        if orders.backups.is_some() {
            let (db, notes) = (&db, (&notebook, orders.clients));
            let early = orders.backups == Some(Honesty::Early);
            scope.spawn(move || {
                if let Err(error) = orders.backups().take(db, notes, early) {
                    eprintln!("{orders}: {error}");
                    process::exit(1);
                }
            });
        }
        let run = &run;
        let clients: Vec<_> = (0..orders.clients)
            .map(|client| scope.spawn(move || run(client)))
            .collect();
        clients
            .into_iter()
            .try_for_each(|client| match client.join() {
                Ok(done) => done,
                Err(_) => Err(Box::from("a client panicked")),
            })
    })
}

fn run_client(
    orders: &Orders,
    db: &Database,
    notebook: &Notebook,
    client: u32,
    scale: Scale,
) -> Result<(), Box<dyn error::Error + Send + Sync>> {
    let first = notebook.client(client)?.begun + 1;
    for n in (first..).take(usize::try_from(orders.each).unwrap_or(usize::MAX)) {
        notebook.begin(client, n)?;
        if orders.honesty == Honesty::Early {
            notebook.acknowledge(client, n)?;
        }
        let durability = match orders.honesty {
            Honesty::Unsynced => Durability::Buffered,
            _ => durability(client),
        };
        load::run(db, orders.seed, (client, n), scale, durability)?;
        notebook.acknowledge(client, n)?;
    }
    Ok(())
}

impl fmt::Display for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}, {} clients, {}",
            self.seed,
            self.clients,
            self.folder.display()
        )
    }
}
