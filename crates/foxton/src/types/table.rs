//! Tables as constants: a name, a key type and a value type.

use std::fmt;
use std::marker::PhantomData;

use crate::types::codec::{Key, Value};
use crate::types::component::TableComponent;

/// A named, ordered map from `K` to `V` in a database.
///
/// A table is usually a constant, because it holds only the name and the types. The first write
/// makes the table in the database, which stores the types and later refuses the name with other
/// types. Until then reads find nothing, and make nothing. A made table stays, even if the
/// transaction rolls back; there is no way to remove one.
///
/// `Table<[u8], [u8]>` is a raw table: its keys and values are plain bytes.
///
/// ```
/// use foxton::{Database, Options, Table};
///
/// const BYTES: Table<[u8], [u8]> = Table::new("bytes");
/// const NAMES: Table<str, u32> = Table::new("names");
/// const SEATS: Table<(u16, &str), ()> = Table::new("seats");
///
/// let db = Database::in_memory(Options::default())?;
/// let mut tx = db.begin()?;
/// tx.put(&BYTES, b"\x01\x02", b"anything")?;
/// tx.put(&NAMES, "ada", &1815)?;
/// tx.put(&SEATS, &(14, "window"), &())?;
/// assert_eq!(tx.get(&NAMES, "ada")?, Some(1815));
/// tx.commit()?;
/// # Ok::<(), foxton::Error>(())
/// ```
pub struct Table<K: ?Sized, V: ?Sized> {
    name: &'static str,
    component: Option<TableComponent>,
    // Covariant in both, so that a table over `&'static str` accepts shorter-lived keys. A function
    // type, so that a table is Send and Sync whatever its key and value types are.
    types: PhantomData<fn() -> (*const K, *const V)>,
}

impl<K: Key + ?Sized, V: Value + ?Sized> Table<K, V> {
    /// Returns the table called `name`, which has 1 to 255 bytes.
    pub const fn new(name: &'static str) -> Table<K, V> {
        Table {
            name,
            component: None,
            types: PhantomData,
        }
    }

    /// Returns the table as one whose rows are in pages. A new table is made so; an existing one
    /// that is in memory is refused with `table_component`.
    ///
    /// ```
    /// use foxton::{Database, Options, Table};
    ///
    /// const EVENTS: Table<u64, str> = Table::new("events").paged();
    ///
    /// let db = Database::in_memory(Options::default())?;
    /// db.run(|tx| tx.put(&EVENTS, &1, "opened"))?;
    /// assert_eq!(db.run(|tx| tx.get(&EVENTS, &1))?.as_deref(), Some("opened"));
    ///
    /// const OTHERWISE: Table<u64, str> = Table::new("events").resident();
    /// let refused = db.run(|tx| tx.get(&OTHERWISE, &1)).unwrap_err();
    /// assert_eq!(refused.code(), "table_component");
    /// # Ok::<(), foxton::Error>(())
    /// ```
    pub const fn paged(self) -> Table<K, V> {
        self.in_component(TableComponent::Paged)
    }

    /// Returns the table as one whose rows are in memory. A new table is made so; an existing one
    /// in pages is refused with `table_component`.
    pub const fn resident(self) -> Table<K, V> {
        self.in_component(TableComponent::Resident)
    }

    const fn in_component(self, component: TableComponent) -> Table<K, V> {
        Table {
            name: self.name,
            component: Some(component),
            types: PhantomData,
        }
    }
}

impl<K: ?Sized, V: ?Sized> Table<K, V> {
    /// Returns the table's name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the component that the program requires; `None` accepts either. A new table is then
    /// made where [`Options::component`](crate::Options::component) says.
    pub const fn component(&self) -> Option<TableComponent> {
        self.component
    }
}

impl<K: ?Sized, V: ?Sized> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: ?Sized, V: ?Sized> Copy for Table<K, V> {}

impl<K: ?Sized, V: ?Sized> fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Table").field(&self.name).finish()
    }
}
