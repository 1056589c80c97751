//! The process that is killed: clients that never stop, or that stop after so many transactions.
//!
//! A client's promise depends on its number, so that all three are tried against each other: of
//! four clients two commit *sync*, one *buffered*, one with durability *none*.

use crate::{
    backups::Backups,
    ledger::{Scale, mix},
    load,
    notebook::Notebook,
};
use foxton::{
    Database, Durability, LatchKind, LockInheritance, LockManagerKind, Options, VictimPolicy,
};
use std::{
    env, error,
    ffi::OsString,
    fmt, io,
    path::{Path, PathBuf},
    process::{self, Command},
    thread,
    time::Duration,
};

/// What a victim is told to do.
#[derive(Debug, Clone)]
pub struct Orders {
    /// Where the database and the notebook lie.
    pub folder: PathBuf,
    /// What decides every transaction.
    pub seed: u64,
    /// How many clients run, each on a thread.
    pub clients: u32,
    /// Transactions of each; then the database is closed. [`u64::MAX`] to run until killed.
    pub each: u64,
    /// When the notebook is told of a commit.
    pub honesty: Honesty,
    /// Whether it takes backups meanwhile, and when it says that one is done.
    pub backups: Option<Honesty>,
}

/// When a client notes that its commit was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Honesty {
    /// When it was.
    Honest,
    /// Before it asks for it: a fault, planted to see that the check finds it.
    Early,
    /// When it was; but nothing was ever synced for it. For power cuts, the same.
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

/// In the place of a name.
const NO_BACKUPS: &str = "none";

impl Orders {
    /// Where the database lies.
    pub fn database(&self) -> PathBuf {
        self.folder.join("database")
    }

    /// Where the notebook lies.
    pub fn notebook(&self) -> PathBuf {
        self.folder.join("notebook")
    }

    /// Where backups and the list of them lie.
    pub fn backups(&self) -> Backups {
        Backups {
            database: self.database(),
            shelf: self.folder.join("backups"),
            list: self.folder.join("backups-begun"),
        }
    }

    /// The arguments that say the same to another process.
    pub fn give(&self, command: &mut Command) {
        command
            .arg(&self.folder)
            .arg(self.seed.to_string())
            .arg(self.clients.to_string())
            .arg(self.each.to_string())
            .arg(self.honesty.name())
            .arg(self.backups.map_or(NO_BACKUPS, Honesty::name));
    }

    /// Reads the arguments that [`give`](Self::give) wrote. `None` if they are not those.
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
        })
    }
}

/// What a client's commits promise.
pub fn durability(client: u32) -> Durability {
    match client % 4 {
        2 => Durability::Buffered,
        3 => Durability::None,
        _ => Durability::Sync,
    }
}

/// The options of every database here: everything small, and a lock manager, a latch, a victim
/// policy and a distance of checkpoints that `seed` draws, since none of them may matter.
pub fn options(seed: u64) -> Options {
    let draw = |what: u64, count: usize| mix(mix(seed) ^ what) as usize % count;
    let mut options = Options::tiny();
    options.lock_manager = LockManagerKind::ALL[draw(1, LockManagerKind::ALL.len())];
    options.lock_inheritance = LockInheritance::ALL[draw(4, LockInheritance::ALL.len())];
    options.latch = LatchKind::PLAIN[draw(2, LatchKind::PLAIN.len())];
    options.lock_threads = draw(4, 2) == 1;
    // Mostly as it is by default, since that is the harder.
    options.early_release = draw(5, 4) != 0;
    options.victim = VictimPolicy::ALL[draw(3, VictimPolicy::ALL.len())];
    // One after the other, now and then, or never.
    options.checkpoint_log_bytes = [4 << 10, 16 << 10, u64::MAX][draw(6, 3)];
    options
}

/// Whether the tables of a victim with this `seed` have indexes: every second.
pub fn has_indexes(seed: u64) -> bool {
    mix(mix(seed) ^ 7).is_multiple_of(2)
}

/// [`options`], with the indexes of a victim that has some.
fn options_of_victims(seed: u64) -> Options {
    let mut options = options(seed);
    if has_indexes(seed) {
        load::declare(&mut options);
    }
    options
}

/// Opens the database at `path` as victims and their checkers do.
///
/// # Errors
///
/// Whatever the database answers.
pub fn open(path: &Path, seed: u64) -> foxton::Result<Database> {
    Database::open_with(path, options_of_victims(seed))
}

/// How a victim ends that was refused by its device and said so.
pub const REFUSED: i32 = 3;

/// What a database may say when its device failed.
pub const DEVICE_CODES: [&str; 3] = ["io", "device_full", "poisoned"];

/// As its first argument it makes a program that runs victims the victim.
const FLAG: &str = "--victim";

/// How to start this program as the victim. It must begin with [`taken`].
///
/// # Errors
///
/// If this program does not know where it lies.
pub fn of_myself() -> io::Result<impl Fn() -> Command> {
    let me = env::current_exe()?;
    Ok(move || {
        let mut command = Command::new(&me);
        command.arg(FLAG);
        command
    })
}

/// If this process was started as [`of_myself`] says: carries out its orders, and says with which status
/// it has to end.
pub fn taken() -> Option<i32> {
    let mut arguments = env::args_os().skip(1);
    (arguments.next()? == FLAG).then(|| carry_out(Orders::take(arguments)))
}

/// Carries out `orders`. The status with which the process has to end: 0, [`REFUSED`] if the device failed
/// and the database said so, or 1 for everything else.
pub fn carry_out(orders: Option<Orders>) -> i32 {
    let Some(orders) = orders else {
        eprintln!(
            "a victim's orders: FOLDER SEED CLIENTS EACH honest|early|unsynced none|honest|early"
        );
        return 1;
    };
    let Err(error) = run(&orders, Scale::SMALL) else {
        return 0;
    };
    eprintln!("{orders}: {error}");
    match error.downcast_ref::<foxton::Error>() {
        Some(error) if DEVICE_CODES.contains(&error.code()) => REFUSED,
        _ => 1,
    }
}

/// Runs until killed, or until every client has done what it was told to.
///
/// # Errors
///
/// Whatever goes wrong.
pub fn run(orders: &Orders, scale: Scale) -> Result<(), Box<dyn error::Error + Send + Sync>> {
    let notebook = Notebook::open(&orders.notebook())?;
    let mut options = options_of_victims(orders.seed);
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
