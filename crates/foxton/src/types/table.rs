//! Tables as constants: a name and two types.

use std::fmt;
use std::marker::PhantomData;

use crate::types::codec::{Key, Value};

/// An ordered map from `K` to `V` in a database, by name.
///
/// A constant, usually; it holds nothing but the name and the types. The table comes into being
/// when a transaction first uses it. From then on the database remembers the types and refuses the
/// name with others.
///
/// `Table<[u8], [u8]>` is the raw door: keys and values are the bytes themselves.
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
    // Covariant in both, so that a constant over `&'static str` takes shorter-lived keys; a
    // function type, so that a table is Send and Sync whatever its keys are.
    types: PhantomData<fn() -> (*const K, *const V)>,
}

impl<K: Key + ?Sized, V: Value + ?Sized> Table<K, V> {
    /// The table called `name` (1 to 255 bytes).
    pub const fn new(name: &'static str) -> Table<K, V> {
        Table {
            name,
            types: PhantomData,
        }
    }
}

impl<K: ?Sized, V: ?Sized> Table<K, V> {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
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
