//! The verbs that look after a database: what they take, and the help that teaches it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use foxton::Lsn;

/// How rows are written as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RowFormat {
    /// JSON lines: any number of tables, with their types.
    Jsonl,
    /// Comma-separated values: one table, without its types.
    Csv,
}

/// The arguments of `dump`.
#[derive(Debug, Args)]
#[command(after_help = "\
All tables are written as of one moment: one serializable transaction reads them. The
database must not be open elsewhere; of one that is, dump a restored backup.

A line of JSON is a row, {\"key\":1,\"value\":\"one\"}. Before a table's rows a line says
its name and types and how many tables come behind it, after them a line says how many
rows there were. Bytes are hexadecimal after 0x, tuples are arrays, an absent option is
null. A value of a type of your own is written as it is stored, in hexadecimal, and so is
whatever is no encoding of its table's type, as {\"raw\":\"0x..\"}. What `foxton load`
makes of it is the same byte for byte.

A file that is named by --out has that name only when all of it is there and synced, and
is made for its owner alone. Until then, and if the command is killed, it is called
.foxton-dump-*.unfinished.

Examples:
  foxton dump /tmp/play > play.jsonl
  foxton dump /tmp/play --table fruit --format csv
  foxton dump /tmp/play | jq -c 'select(.key == \"apple\")'
  foxton dump /tmp/play | foxton load /tmp/copy -       a copy without its history")]
pub(crate) struct Dump {
    /// The database's directory.
    pub(crate) directory: PathBuf,
    /// Only this table; may be said several times.
    #[arg(long)]
    pub(crate) table: Vec<String>,
    /// How rows are written.
    #[arg(long, value_enum, default_value_t = RowFormat::Jsonl)]
    pub(crate) format: RowFormat,
    /// The file to be made; `-` for standard output.
    #[arg(long, default_value = "-")]
    pub(crate) out: PathBuf,
}

/// The arguments of `load`.
#[derive(Debug, Args)]
#[command(after_help = "\
A row whose key is there already replaces its value. A table that is not there is made,
with the types that the file says, or those of --key and --value; so is a database.

Rows go in by batches, each one transaction. A bad line, which is not understood or not
taken by its table, is told with its number. By default nothing of its batch is loaded and
loading ends, with exit code 1; with --skip-bad bad lines are passed over. --batch 0 makes
one batch of everything: all or nothing. Whatever ended loading, the file can be loaded
again: rows loaded twice do no harm.

What was cut is noticed: a table without the line that ends it, fewer tables than were to
come, a quote that is not closed. Only of comma-separated values whole rows can be missing
without a trace.

Examples:
  foxton load /tmp/play play.jsonl
  foxton load /tmp/play fruit.csv --table fruit
  foxton load /tmp/new fruit.csv --table fruit --key str --value '(str,u32)'
  zcat rows.jsonl.gz | foxton load /tmp/play - --table rows --skip-bad")]
pub(crate) struct Load {
    /// The database's directory; it is made if it is not there.
    pub(crate) directory: PathBuf,
    /// The file of rows; `-` for standard input.
    pub(crate) file: PathBuf,
    /// The table for rows that come without a table's line before them. Rows of other tables are
    /// passed over.
    #[arg(long)]
    pub(crate) table: Option<String>,
    /// How rows are written [default: csv for a file whose name ends in .csv, else jsonl].
    #[arg(long, value_enum)]
    pub(crate) format: Option<RowFormat>,
    /// Pass bad lines over, and load the others.
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// Lines of one transaction; 0 for one transaction over all.
    #[arg(long, default_value_t = 1000)]
    pub(crate) batch: u64,
    /// The type of the keys, if --table is not there yet: u8 to u128, i8 to i128, bool, str, bytes,
    /// tuples such as (u32,str), arrays such as [u8;4], or the name of a type of your own.
    #[arg(long, requires = "table", requires = "value")]
    pub(crate) key: Option<String>,
    /// The type of the values; f32, f64 and option(T) as well.
    #[arg(long, requires = "table", requires = "key")]
    pub(crate) value: Option<String>,
}

/// The arguments of `backup`.
#[derive(Debug, Args)]
#[command(after_help = "\
The files of the database are read as they are. It need not be closed, and a process that
has it open need not be asked and does not notice: nobody waits for a backup. What is in
the backup is the database as it was at one position of its log, which is said at the end.
Commits that were acknowledged sync or buffered before the command began are in it; of
those with durability none, those that were written by then. (A program makes sure of all
with `db.backup_to(path)`.)

The backup is synced and read again before it gets its label, the file `backup`. A
directory without it holds nothing that could be restored. A backup is not opened but
restored.

Exit codes: 0 the backup is whole; 1 there is none.

Examples:
  foxton backup /var/lib/shop /backups/shop-monday
  foxton restore /backups/shop-monday /tmp/look      a database to look into
  foxton inspect /tmp/look")]
pub(crate) struct Backup {
    /// The database's directory.
    pub(crate) directory: PathBuf,
    /// The directory of the backup; it is made, or is empty.
    pub(crate) target: PathBuf,
}

/// The arguments of `restore`.
#[derive(Debug, Args)]
#[command(after_help = "\
Every record is checked on the way, and what was written is read again. The database is
one only when all of it is there: a restore that was interrupted leaves a directory with a
file `restoring`, which nobody opens. The same restore, given again, begins anew there.

--to goes back further: the database becomes what it was after the last commit whose
record ends at that position of the log or before. `foxton restore BACKUP` alone says
which positions a backup reaches to.

The restored database is the same one with another future. Never mix its files with those
of the original.

Examples:
  foxton restore /backups/shop-monday
  foxton restore /backups/shop-monday /var/lib/shop
  foxton restore /backups/shop-monday /tmp/earlier --to 81264")]
pub(crate) struct Restore {
    /// The directory of the backup.
    pub(crate) backup: PathBuf,
    /// The directory of the database; it is made, or is empty, or was left by a restore that was
    /// interrupted. Without it, only says what is in the backup.
    pub(crate) target: Option<PathBuf>,
    /// The position of the log to go back to.
    #[arg(long, value_name = "POSITION", requires = "target", value_parser = position)]
    pub(crate) to: Option<Lsn>,
}

fn position(text: &str) -> Result<Lsn, String> {
    let bytes = text.parse().map(Lsn::new);
    bytes.map_err(|_| "say a position of the log, a number such as 81264".to_owned())
}

/// The arguments of `check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Every checksum is compared: of the superblock, of the checkpoint and each block of its
rows, of the log's files and each of its records, those behind damage included. Then the
tables are loaded as opening does, and their order, their index and the way to each row
are looked at. A backup can be checked, too.

Nothing is ever changed: not a torn end, which is where a log stops that was not closed
and is no damage, and not the lock, so that nobody can open the database meanwhile.
Nothing is repaired, either: what is damaged is restored from a backup, and `foxton dump`
tells what can still be read of a database that opens.

Exit codes: 0 nothing is wrong; 1 something is, and is named; 2 it could not be checked:
there is no database, a process has it open, it is of a later version, or the device
fails.

Examples:
  foxton check /var/lib/shop
  foxton check /backups/shop-monday")]
pub(crate) struct Check {
    /// The directory of a database that no process has open, or of a backup.
    pub(crate) directory: PathBuf,
}
