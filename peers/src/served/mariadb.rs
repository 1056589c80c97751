//! MariaDB with InnoDB: serializable by locks, those of reads as well.

use super::{
    Durability,
    contract::{Ask, Came, Engine, Rows, Session, Shape, Step, Stop, Totals, one},
    server::{Server, program},
    sql::{self, Dialect, STATEMENTS, Statement},
};
use crate::Outcome;
use mysql::{
    Conn, Error, OptsBuilder, Params, Row, Value, consts::CapabilityFlags, prelude::Queryable,
};
use std::path::Path;

const DIALECT: Dialect = Dialect {
    place: |_| "?".to_owned(),
    whole: "SIGNED",
    text: "VARCHAR(2000) CHARACTER SET latin1 COLLATE latin1_bin",
};
/// A deadlock, and a lock that was not had in time.
const GAVE_WAY: [u16; 2] = [1213, 1205];

pub(crate) struct Mariadb {
    server: Server,
    names: Vec<&'static str>,
}

fn flushed(durability: Durability) -> &'static str {
    match durability {
        Durability::None => "0",
        Durability::Buffered => "2",
        Durability::Sync => "1",
    }
}

pub(crate) fn settings(durability: Durability) -> String {
    format!(
        "MariaDB over a local socket, statements prepared; InnoDB, SERIALIZABLE, innodb_buffer_pool_size=512M, no binary \
         log, innodb_flush_log_at_trx_commit={}",
        flushed(durability)
    )
}

impl Mariadb {
    pub(crate) fn load(
        folder: &Path,
        durability: Durability,
        shapes: &[Shape],
        row: &Rows<'_>,
    ) -> Outcome<Mariadb> {
        let mut server = Server::new(folder)?;
        let data = format!("--datadir={}/data", server.folder().display());
        let make = [
            "--no-defaults",
            &data,
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ];
        server.prepare(&program("mariadb-install-db")?, &make.map(str::to_owned))?;
        let socket = server.folder().join("socket");
        let arguments = [
            "--no-defaults",
            &data,
            &format!("--socket={}", socket.display()),
            "--skip-networking",
            "--skip-grant-tables",
            "--skip-log-bin",
            "--max-connections=1100",
            "--innodb-buffer-pool-size=512M",
            "--innodb-log-file-size=512M",
            "--transaction-isolation=SERIALIZABLE",
            "--max-prepared-stmt-count=1000000",
            &format!("--innodb-flush-log-at-trx-commit={}", flushed(durability)),
        ];
        let arguments = arguments.map(str::to_owned);
        server.start(&program("mariadbd")?, &arguments, || {
            connect(&socket, None).map(drop)
        })?;
        let mut made = connect(&socket, None)?;
        made.query_drop("CREATE DATABASE bench")?;
        let mut client = connect(&socket, Some("bench"))?;
        sql::load(shapes, row, DIALECT, |statement| {
            client.query_drop(statement)
        })?;
        let names = shapes.iter().map(|shape| shape.name).collect();
        Ok(Mariadb { server, names })
    }

    fn connect(&self) -> Outcome<Conn> {
        connect(&self.server.folder().join("socket"), Some("bench"))
    }
}

fn connect(socket: &Path, database: Option<&str>) -> Outcome<Conn> {
    let options = OptsBuilder::new()
        .socket(Some(socket.display().to_string()))
        .user(Some("root"))
        .stmt_cache_size(0)
        // A row that is given what it has already is found, too.
        .additional_capabilities(CapabilityFlags::CLIENT_FOUND_ROWS)
        .db_name(database);
    Ok(Conn::new(options)?)
}

impl Engine for Mariadb {
    fn session(&self) -> Outcome<Box<dyn Session + '_>> {
        Ok(Box::new(Connected {
            client: self.connect()?,
            names: &self.names,
            statements: vec![None; self.names.len() * STATEMENTS],
        }))
    }

    fn totals(&self, table: usize) -> Outcome<Totals> {
        let mut client = self.connect()?;
        let totals = sql::totals(self.names[table], DIALECT);
        let row: Option<(u64, u64, u64, i64, u64)> = client.query_first(totals)?;
        let (rows, least_id, greatest_id, sum, letters) = row.ok_or("a sum has no row")?;
        Ok(Totals {
            rows,
            least_id,
            greatest_id,
            sum,
            letters,
        })
    }
}

struct Connected<'s> {
    client: Conn,
    names: &'s [&'static str],
    /// By table and statement, once they were asked for.
    statements: Vec<Option<mysql::Statement>>,
}

fn stop(error: Error) -> Stop {
    match &error {
        Error::MySqlError(said) if GAVE_WAY.contains(&said.code) => Stop::GaveWay,
        _ => Stop::Failed(error.into()),
    }
}

impl Connected<'_> {
    fn prepared(&mut self, table: usize, what: Statement) -> Step<mysql::Statement> {
        let place = table * STATEMENTS + what.number();
        if let Some(statement) = &self.statements[place] {
            return Ok(statement.clone());
        }
        let text = what.text(self.names[table], DIALECT);
        let statement = self.client.prep(text).map_err(stop)?;
        Ok(self.statements[place].insert(statement).clone())
    }

    fn rows(&mut self, table: usize, what: Statement, with: Vec<Value>) -> Step<Vec<Row>> {
        let statement = self.prepared(table, what)?;
        let with = Params::Positional(with);
        self.client.exec(statement, with).map_err(stop)
    }

    /// Changes the row `id`, which must be there.
    fn change(&mut self, table: usize, id: u64, what: Statement, with: Vec<Value>) -> Step {
        let statement = self.prepared(table, what)?;
        let with = Params::Positional(with);
        self.client.exec_drop(statement, with).map_err(stop)?;
        one(self.client.affected_rows(), table, id)
    }
}

/// The number in the first column.
fn number(row: &Row) -> Step<i64> {
    match row.get::<i64, usize>(0) {
        Some(number) => Ok(number),
        None => Err(Stop::Failed("a row without a number".into())),
    }
}

impl Session for Connected<'_> {
    fn begin(&mut self) -> Step {
        self.client.query_drop("START TRANSACTION").map_err(stop)
    }

    fn commit(&mut self) -> Step {
        self.client.query_drop("COMMIT").map_err(stop)
    }

    fn undo(&mut self) -> Outcome {
        Ok(self.client.query_drop("ROLLBACK")?)
    }

    fn read(&mut self, table: usize, id: u64) -> Step<i64> {
        let rows = self.rows(table, Statement::Read, vec![id.into()])?;
        one(rows.len() as u64, table, id)?;
        number(&rows[0])
    }

    fn range(&mut self, ask: Ask, table: usize, first: u64, last: u64) -> Step<Came> {
        let ids = vec![first.into(), last.into()];
        let rows = self.rows(table, Statement::Range(ask), ids)?;
        let mut came = Came {
            rows: rows.len() as u64,
            sum: 0,
        };
        if matches!(ask, Ask::Rows | Ask::Sum) {
            for row in &rows {
                came.sum += number(row)?;
            }
        }
        Ok(came)
    }

    fn add(&mut self, table: usize, id: u64, amount: i64) -> Step {
        self.change(table, id, Statement::Add, vec![amount.into(), id.into()])
    }

    fn set(&mut self, table: usize, id: u64, text: &str) -> Step {
        self.change(table, id, Statement::Set, vec![text.into(), id.into()])
    }

    fn delete(&mut self, table: usize, id: u64) -> Step {
        self.change(table, id, Statement::Delete, vec![id.into()])
    }

    fn insert(&mut self, table: usize, id: u64, number: i64, text: &str) -> Step {
        let row = vec![id.into(), number.into(), text.into()];
        self.change(table, id, Statement::Insert, row)
    }
}
