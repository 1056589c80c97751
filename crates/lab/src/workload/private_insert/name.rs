//! Names of tables that are made while clients run.
//!
//! A table is called by a name that lives as long as the program. So that a program that makes
//! tables in many databases does not keep a name for each, names are numbered, and a number has the
//! same name in every database.

use std::sync::{Mutex, PoisonError};

use foxton::{MAX_TABLES, Table};

static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// Table `number`, from 0; `None` if a database takes no more tables.
pub fn table(number: usize) -> Option<Table<u32, [u8]>> {
    if number >= MAX_TABLES {
        return None;
    }
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    while names.len() <= number {
        let name = format!("private_{}", names.len());
        names.push(name.leak());
    }
    Some(Table::new(names[number]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_name_however_often_it_is_asked_for() {
        let [seven, again] = [7, 7].map(|number| table(number).unwrap().name());
        assert_eq!(seven, "private_7");
        assert!(std::ptr::eq(seven, again));
        assert!(table(MAX_TABLES - 1).is_some() && table(MAX_TABLES).is_none());
    }
}
