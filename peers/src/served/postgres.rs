//! PostgreSQL: serializable by snapshots and by refusing commits that fit no serial order.
//!
//! It refuses by the reads that it remembers: rows, the index page that a search passed, and the
//! whole table after a scan. So its settings make that finer: plans use an index also for a table
//! of a few pages, and an index page has fewer entries.

use super::{
    Durability,
    contract::{Ask, Came, Engine, Rows, Session, Shape, Step, Stop, Totals, one},
    server::{Server, program},
    sql::{self, Dialect, STATEMENTS, Statement},
};
use crate::Outcome;
use clap::Args;
use postgres::{Client, Config, NoTls, Row, error::SqlState, types::ToSql};
use std::path::Path;

const DIALECT: Dialect = Dialect {
    place: |n| format!("${n}"),
    whole: "BIGINT",
    text: "VARCHAR(2000)",
};
const USER: &str = "foxton";
/// Of a page of an index, in percent.
const FILLED: u8 = 10;
/// Settings of every server, besides durability.
const SETTINGS: [&str; 5] = [
    "shared_buffers=512MB",
    "max_wal_size=4GB",
    "max_pred_locks_per_transaction=256",
    // PostgreSQL's manual advises this where all data is in memory. With the default of 4 the
    // planner scans a table of a hundred rows, so each update has read all rows, and more are
    // refused.
    "random_page_cost=1.1",
    // A refusal goes to its client and not to the log.
    "log_min_messages=fatal",
];

/// Settings that an argument may override.
#[derive(Debug, Clone, Args)]
pub(crate) struct Given {
    /// A setting of PostgreSQL's server over those it is given anyway (random_page_cost=4).
    #[arg(long = "postgres", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Percent of a page that PostgreSQL fills when it makes an index.
    #[arg(long = "postgres-filled", value_name = "PERCENT", default_value_t = FILLED,
        value_parser = clap::value_parser!(u8).range(10..=100))]
    filled: u8,
}

impl Default for Given {
    fn default() -> Given {
        Given {
            settings: Vec::new(),
            filled: FILLED,
        }
    }
}

pub(crate) struct Postgres {
    server: Server,
    names: Vec<&'static str>,
}

fn options(durability: Durability) -> [&'static str; 2] {
    match durability {
        Durability::None => ["fsync=off", "synchronous_commit=off"],
        Durability::Buffered => ["fsync=off", "synchronous_commit=on"],
        Durability::Sync => ["fsync=on", "synchronous_commit=on"],
    }
}

pub(crate) fn settings(durability: Durability, given: &Given) -> String {
    let mut all: Vec<&str> = [&options(durability)[..], &SETTINGS].concat();
    all.extend(given.settings.iter().map(String::as_str));
    format!(
        "PostgreSQL over a local socket, statements prepared; SERIALIZABLE, indexes with fillfactor={}, {}",
        given.filled,
        all.join(", ")
    )
}

impl Postgres {
    pub(crate) fn load(
        folder: &Path,
        durability: Durability,
        given: &Given,
        shapes: &[Shape],
        row: &Rows<'_>,
    ) -> Outcome<Postgres> {
        let mut server = Server::new(folder)?;
        let place = server.folder().display().to_string();
        let data = format!("{place}/data");
        let make = [
            "-D",
            &data,
            "-U",
            USER,
            "--auth=trust",
            "--locale=C",
            "--encoding=UTF8",
        ];
        server.prepare(&program("initdb")?, &make.map(str::to_owned))?;
        let socket = format!("unix_socket_directories={place}");
        let ours = [&socket, "listen_addresses=", "max_connections=1100"];
        let mut arguments = vec!["-D".to_owned(), data];
        // Of two for the same, the server takes the last.
        for setting in [&ours[..], &options(durability), &SETTINGS].concat() {
            arguments.extend(["-c".to_owned(), setting.to_owned()]);
        }
        for setting in &given.settings {
            arguments.extend(["-c".to_owned(), setting.clone()]);
        }
        let folder = server.folder().to_owned();
        server.start(&program("postgres")?, &arguments, || {
            connect(&folder).map(drop)
        })?;
        let mut client = connect(server.folder())?;
        sql::load(shapes, row, DIALECT, |statement| {
            client.batch_execute(statement)
        })?;
        // History is only added to, and nobody looks anything up in it.
        for Shape { name, indexed, .. } in shapes.iter().filter(|shape| shape.rows > 0) {
            let suffixes = &["pkey", "n"][..1 + usize::from(*indexed)];
            for suffix in suffixes {
                client.batch_execute(&format!(
                    "ALTER INDEX {name}_{suffix} SET (fillfactor = {}); REINDEX INDEX {name}_{suffix}",
                    given.filled
                ))?;
            }
        }
        client.batch_execute("VACUUM ANALYZE")?;
        let names = shapes.iter().map(|shape| shape.name).collect();
        Ok(Postgres { server, names })
    }
}

fn connect(folder: &Path) -> Outcome<Client> {
    let mut config = Config::new();
    config.host_path(folder).user(USER).dbname("postgres");
    Ok(config.connect(NoTls)?)
}

impl Engine for Postgres {
    fn session(&self) -> Outcome<Box<dyn Session + '_>> {
        Ok(Box::new(Connected {
            client: connect(self.server.folder())?,
            names: &self.names,
            statements: vec![None; self.names.len() * STATEMENTS],
        }))
    }

    fn totals(&self, table: usize) -> Outcome<Totals> {
        let mut client = connect(self.server.folder())?;
        let row = client.query_one(&sql::totals(self.names[table], DIALECT), &[])?;
        let cell = |at| row.try_get::<_, i64>(at);
        Ok(Totals {
            rows: cell(0)? as u64,
            least_id: cell(1)? as u64,
            greatest_id: cell(2)? as u64,
            sum: cell(3)?,
            letters: cell(4)? as u64,
        })
    }
}

struct Connected<'s> {
    client: Client,
    names: &'s [&'static str],
    /// By table and statement, once they were asked for.
    statements: Vec<Option<postgres::Statement>>,
}

fn stop(error: postgres::Error) -> Stop {
    let refused = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
    ];
    match error.code() {
        Some(code) if refused.contains(code) => Stop::GaveWay,
        _ => Stop::Failed(error.into()),
    }
}

type Argument<'a> = &'a (dyn ToSql + Sync);

impl Connected<'_> {
    fn prepared(&mut self, table: usize, what: Statement) -> Step<postgres::Statement> {
        let place = table * STATEMENTS + what.number();
        if let Some(statement) = &self.statements[place] {
            return Ok(statement.clone());
        }
        let text = what.text(self.names[table], DIALECT);
        let statement = self.client.prepare(&text).map_err(stop)?;
        Ok(self.statements[place].insert(statement).clone())
    }

    fn rows(&mut self, table: usize, what: Statement, with: &[Argument<'_>]) -> Step<Vec<Row>> {
        let statement = self.prepared(table, what)?;
        self.client.query(&statement, with).map_err(stop)
    }

    /// Changes the row `id`, which must be there.
    fn change(&mut self, table: usize, id: i64, what: Statement, with: &[Argument<'_>]) -> Step {
        let statement = self.prepared(table, what)?;
        let changed = self.client.execute(&statement, with).map_err(stop)?;
        one(changed, table, id as u64)
    }
}

impl Session for Connected<'_> {
    fn begin(&mut self) -> Step {
        let begin = "BEGIN ISOLATION LEVEL SERIALIZABLE";
        self.client.batch_execute(begin).map_err(stop)
    }

    fn commit(&mut self) -> Step {
        self.client.batch_execute("COMMIT").map_err(stop)
    }

    fn undo(&mut self) -> Outcome {
        Ok(self.client.batch_execute("ROLLBACK")?)
    }

    fn read(&mut self, table: usize, id: u64) -> Step<i64> {
        let rows = self.rows(table, Statement::Read, &[&(id as i64)])?;
        one(rows.len() as u64, table, id)?;
        rows[0].try_get(0).map_err(stop)
    }

    fn range(&mut self, ask: Ask, table: usize, first: u64, last: u64) -> Step<Came> {
        let ids: [Argument<'_>; 2] = [&(first as i64), &(last as i64)];
        let rows = self.rows(table, Statement::Range(ask), &ids)?;
        let mut came = Came {
            rows: rows.len() as u64,
            sum: 0,
        };
        if matches!(ask, Ask::Rows | Ask::Sum) {
            for row in &rows {
                came.sum += row.try_get::<_, i64>(0).map_err(stop)?;
            }
        }
        Ok(came)
    }

    fn add(&mut self, table: usize, id: u64, amount: i64) -> Step {
        let id = id as i64;
        self.change(table, id, Statement::Add, &[&amount, &id])
    }

    fn set(&mut self, table: usize, id: u64, text: &str) -> Step {
        let id = id as i64;
        self.change(table, id, Statement::Set, &[&text, &id])
    }

    fn delete(&mut self, table: usize, id: u64) -> Step {
        let id = id as i64;
        self.change(table, id, Statement::Delete, &[&id])
    }

    fn insert(&mut self, table: usize, id: u64, number: i64, text: &str) -> Step {
        let id = id as i64;
        self.change(table, id, Statement::Insert, &[&id, &number, &text])
    }
}
