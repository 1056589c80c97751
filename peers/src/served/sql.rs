//! The statements, as both servers take them.

use super::contract::{Ask, Rows, Shape};

/// A statement that is prepared once for each table and client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Statement {
    Read,
    Range(Ask),
    Add,
    Set,
    Delete,
    Insert,
}

/// How many there are.
pub(crate) const STATEMENTS: usize = 9;

/// Words that differ between servers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dialect {
    /// The place of the n-th argument, from 1.
    pub(crate) place: fn(usize) -> String,
    /// A whole number of 64 bits, in a cast.
    pub(crate) whole: &'static str,
    /// A text of up to two thousand letters.
    pub(crate) text: &'static str,
}

impl Statement {
    /// From 0.
    pub(crate) fn number(self) -> usize {
        match self {
            Statement::Read => 0,
            Statement::Range(ask) => 1 + ask as usize,
            Statement::Add => 5,
            Statement::Set => 6,
            Statement::Delete => 7,
            Statement::Insert => 8,
        }
    }

    /// Arguments stand in the order of their places.
    pub(crate) fn text(self, table: &str, dialect: Dialect) -> String {
        let [first, second, third] = [1, 2, 3].map(dialect.place);
        let ids = format!("FROM {table} WHERE id BETWEEN {first} AND {second}");
        let whole = dialect.whole;
        match self {
            Statement::Read => format!("SELECT n, pad FROM {table} WHERE id = {first}"),
            Statement::Range(Ask::Rows) => format!("SELECT n, pad {ids}"),
            Statement::Range(Ask::Sum) => format!("SELECT CAST(SUM(n) AS {whole}) {ids}"),
            Statement::Range(Ask::Ordered) => format!("SELECT pad {ids} ORDER BY pad"),
            Statement::Range(Ask::Distinct) => format!("SELECT DISTINCT pad {ids} ORDER BY pad"),
            Statement::Add => format!("UPDATE {table} SET n = n + {first} WHERE id = {second}"),
            Statement::Set => format!("UPDATE {table} SET pad = {first} WHERE id = {second}"),
            Statement::Delete => format!("DELETE FROM {table} WHERE id = {first}"),
            Statement::Insert => {
                format!("INSERT INTO {table} (id, n, pad) VALUES ({first}, {second}, {third})")
            }
        }
    }
}

/// The columns of [`Totals`](super::contract::Totals), in its order.
pub(crate) fn totals(table: &str, dialect: Dialect) -> String {
    let whole = dialect.whole;
    let cell = |what: &str| format!("CAST(COALESCE({what}, 0) AS {whole})");
    let cells = [
        "COUNT(*)",
        "MIN(id)",
        "MAX(id)",
        "SUM(n)",
        "SUM(LENGTH(pad))",
    ]
    .map(cell);
    format!("SELECT {} FROM {table}", cells.join(", "))
}

/// Rows of one statement while loading.
const AT_ONCE: u64 = 500;

/// Makes the tables anew and fills them. Texts have nothing that would have to be quoted.
pub(crate) fn load<E>(
    shapes: &[Shape],
    row: &Rows<'_>,
    dialect: Dialect,
    mut run: impl FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    for (
        table,
        Shape {
            name,
            rows,
            indexed,
        },
    ) in shapes.iter().enumerate()
    {
        run(&format!("DROP TABLE IF EXISTS {name}"))?;
        let text = dialect.text;
        run(&format!(
            "CREATE TABLE {name} (id BIGINT PRIMARY KEY, n BIGINT NOT NULL, pad {text} NOT NULL)"
        ))?;
        for first in (1..=*rows).step_by(AT_ONCE as usize) {
            let ids = first..=(first + AT_ONCE - 1).min(*rows);
            let values: Vec<String> = ids
                .map(|id| {
                    let (number, text) = row(table, id);
                    format!("({id},{number},'{text}')")
                })
                .collect();
            run(&format!(
                "INSERT INTO {name} (id, n, pad) VALUES {}",
                values.join(",")
            ))?;
        }
        if *indexed {
            run(&format!("CREATE INDEX {name}_n ON {name} (n)"))?;
        }
    }
    Ok(())
}
