//! Commands that look after a database: their arguments and help.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use foxton::Lsn;

/// Format of rows as text.
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
One serializable transaction reads all tables, so all are of one moment. No other process
may have the database open; to dump one that is open, restore a backup of it first.

A line of JSON is a row, {\"key\":1,\"value\":\"one\"}. A line before a table's rows gives its
name, its types, its component if it is paged, and the number of tables after it; a line
after them gives the number of rows. Bytes are hexadecimal after 0x, tuples are arrays, an
absent option is null. A value of a type of your own is written as it is stored, in
hexadecimal. So are bytes that do not match their table's type, as {\"raw\":\"0x..\"}. `foxton
load` restores every row byte for byte.

The file of --out gets its name when it is complete and synced; only its owner may read
it. Until then, and if the command is killed, its name is .foxton-dump-*.unfinished.

Examples:
  foxton dump /tmp/play > play.jsonl
  foxton dump /tmp/play --table fruit --format csv
  foxton dump /tmp/play | jq -c 'select(.key == \"apple\")'
  foxton dump /tmp/play | foxton load /tmp/copy -       a copy without its history")]
pub(crate) struct Dump {
    /// The database's directory.
    pub(crate) directory: PathBuf,
    /// Dump only this table; can be given several times.
    #[arg(long)]
    pub(crate) table: Vec<String>,
    /// Format of the rows.
    #[arg(long, value_enum, default_value_t = RowFormat::Jsonl)]
    pub(crate) format: RowFormat,
    /// The file to create; `-` for standard output.
    #[arg(long, default_value = "-")]
    pub(crate) out: PathBuf,
}

/// The arguments of `load`.
#[derive(Debug, Args)]
#[command(after_help = "\
A row whose key exists replaces its value. A table that does not exist is created, with
the types that the file gives, or those of --key and --value; so is a database. A table
that was paged is paged again; one that exists keeps its component.

Rows are loaded in batches, each one transaction. A line is bad if it cannot be parsed or
its table refuses it; its number is reported. By default nothing of its batch is loaded and
loading ends with exit code 1; --skip-bad leaves bad lines out. --batch 0 makes one batch
of everything: all or nothing. However loading ended, the file can be loaded again: rows
loaded twice do no harm.

A truncated file is noticed: a table without its last line, fewer tables than announced, a
quote that is not closed. Only in comma-separated values can whole rows be missing unnoticed.

Examples:
  foxton load /tmp/play play.jsonl
  foxton load /tmp/play fruit.csv --table fruit
  foxton load /tmp/new fruit.csv --table fruit --key str --value '(str,u32)'
  zcat rows.jsonl.gz | foxton load /tmp/play - --table rows --skip-bad")]
pub(crate) struct Load {
    /// The database's directory; it is created if it does not exist.
    pub(crate) directory: PathBuf,
    /// The file of rows; `-` for standard input.
    pub(crate) file: PathBuf,
    /// The table for rows without a table's line before them. Rows of other tables are left out.
    #[arg(long)]
    pub(crate) table: Option<String>,
    /// Format of the rows [default: csv if the file's name ends in .csv, else jsonl].
    #[arg(long, value_enum)]
    pub(crate) format: Option<RowFormat>,
    /// Leave bad lines out, and load the others.
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// Lines of one transaction; 0 for one transaction for all.
    #[arg(long, default_value_t = 1000)]
    pub(crate) batch: u64,
    /// Type of the keys, if --table does not exist yet: u8 to u128, i8 to i128, bool, str, bytes.
    /// Also tuples such as (u32,str), arrays such as [u8;4], or the name of a type of your own.
    #[arg(long, requires = "table", requires = "value")]
    pub(crate) key: Option<String>,
    /// Type of the values; f32, f64 and option(T) as well.
    #[arg(long, requires = "table", requires = "key")]
    pub(crate) value: Option<String>,
}

/// The arguments of `backup`.
#[derive(Debug, Args)]
#[command(after_help = "\
The command copies the files of the database. The database need not be closed: a process
that has it open does not notice, and no transaction waits. The backup is the database at
one position of its log, which is printed at the end. It includes commits that were
acknowledged sync or buffered before the command began, and commits with durability none
that were written by then. (A program includes all with `db.backup_to(path)`.)

The backup is synced and read again before it gets its label, the file `backup`. Nothing
can be restored from a directory without it. A backup cannot be opened, only restored.

Exit codes: 0 the backup is complete; 1 there is no backup.

Examples:
  foxton backup /var/lib/shop /backups/shop-monday
  foxton restore /backups/shop-monday /tmp/look      a database to look into
  foxton inspect /tmp/look")]
pub(crate) struct Backup {
    /// The database's directory.
    pub(crate) directory: PathBuf,
    /// The directory of the backup; it is created, or is empty.
    pub(crate) target: PathBuf,
}

/// The arguments of `restore`.
#[derive(Debug, Args)]
#[command(after_help = "\
Every record is checked while it is copied, and the copy is read again. The database can
be opened once it is complete. An interrupted restore leaves a file `restoring`, and the
directory cannot be opened; run the same restore again, and it starts over there.

--to restores an earlier state: the database after the last commit whose record ends at or
before that position of the log. `foxton restore BACKUP` alone prints the positions of a
backup.

The restored database continues from the same past as the original. Never mix its files
with those of the original.

Examples:
  foxton restore /backups/shop-monday
  foxton restore /backups/shop-monday /var/lib/shop
  foxton restore /backups/shop-monday /tmp/earlier --to 81264")]
pub(crate) struct Restore {
    /// The directory of the backup.
    pub(crate) backup: PathBuf,
    /// The directory of the database; it is created, or is empty, or is that of an interrupted
    /// restore. Without it, the command prints what the backup contains.
    pub(crate) target: Option<PathBuf>,
    /// The position of the log to restore.
    #[arg(long, value_name = "POSITION", requires = "target", value_parser = position)]
    pub(crate) to: Option<Lsn>,
}

fn position(text: &str) -> Result<Lsn, String> {
    let bytes = text.parse().map(Lsn::new);
    bytes.map_err(|_| "give a position of the log, a number such as 81264".to_owned())
}

/// Component of the rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Component {
    /// In pages of a file, which may be larger than memory.
    Paged,
    /// In memory, all of them.
    #[value(alias = "resident")]
    Memory,
}

/// The arguments of `convert`.
#[derive(Debug, Args)]
#[command(after_help = "\
Rows in memory are quick, and all of them must fit. Rows in pages may be larger than memory:
a part of them is in memory, and the rest is read when it is needed. A program that declares
the table `.resident()` or `.paged()` has to declare it as it is afterwards; one that declares
neither goes on as before.

No other process may have the database open. A program that has it open converts a table
itself, while it is used, with `db.convert(&TABLE, TableComponent::Paged)`.

The rows are copied, so for a while they take their space twice. However the command ends,
the table is as it was or converted, with all rows. After a kill run it again.

Indexes follow. One of a table that is in pages now is made when the program declares it,
at its next opening, and until then the table takes no writes.

Examples:
  foxton inspect /var/lib/shop                   which tables are in memory
  foxton convert /var/lib/shop orders paged
  foxton convert /var/lib/shop orders memory")]
pub(crate) struct Convert {
    /// The directory of a database that no process has open.
    pub(crate) directory: PathBuf,
    /// The table.
    pub(crate) table: String,
    /// Where its rows are to be.
    #[arg(value_enum)]
    pub(crate) to: Component,
}

/// The arguments of `truncate` and of `drop`.
#[derive(Debug, Args)]
pub(crate) struct DropTable {
    /// The directory of a database that no process has open.
    pub(crate) directory: PathBuf,
    /// The table.
    pub(crate) table: String,
    /// Do it; otherwise the rows are counted, and nothing is changed.
    #[arg(long)]
    pub(crate) yes: bool,
}

/// The arguments of `check`.
#[derive(Debug, Args)]
#[command(after_help = "\
The command compares every checksum: of the superblock, of the checkpoint and each block
of its rows, of the log's files and each of their records, also those after damage. Then
it loads the tables as opening does, and checks their order, their index and the path to
each row. A backup can be checked too.

It changes nothing. It leaves a torn end as it is, which is no damage but the end of a log
that was not closed. It keeps the lock, so that no process can open the database meanwhile.
It repairs nothing: restore damaged files from a backup. `foxton dump` reads the rest of a
database that still opens.

Exit codes: 0 no damage; 1 damage, which is named; 2 it could not be checked: there is no
database, a process has it open, it is of a later version, or the device fails; 3 the
result could not be printed.

Examples:
  foxton check /var/lib/shop
  foxton check /backups/shop-monday")]
pub(crate) struct Check {
    /// The directory of a database that no process has open, or of a backup.
    pub(crate) directory: PathBuf,
}

/// The arguments of `shrink`.
#[derive(Debug, Args)]
#[command(after_help = "\
Deleted rows of paged tables leave free pages in the file `rows`. Later rows use them, so
shrink only if the space is needed elsewhere: rows at random places then make the file grow
again. Tables in memory have no such file; checkpoints give their space back.

The command frees what deleted rows still have, fills pages that are half empty, moves the
last pages to the beginning, and cuts the end off. It needs no second copy on the disk. A
kill at any moment loses nothing, and the next run goes on from there.

No other process may have the database open. A program that has it open calls
`db.shrink()`, and reads and writes go on meanwhile.

Examples:
  foxton shrink /var/lib/shop
  foxton inspect /var/lib/shop        the sizes of all files")]
pub(crate) struct Shrink {
    /// The database's directory.
    pub(crate) directory: PathBuf,
}
