//! Secondary indexes as constants: a name, a table, and a function that extracts a row's index
//! keys.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::types::codec::{Key, TypeName, Undecodable, Value};
use crate::types::component::TableComponent;
use crate::types::index_entry::{EntryKind, ExtractedKeys};
use crate::types::table::Table;

/// A secondary index: maps index keys of type `I` to the rows of a table from `K` to `V`.
///
/// An index is usually a constant, as its table is. A function reads a row and passes each of its
/// index keys to [`Keys::add`]. A row may have several index keys, or none. The index does not
/// contain a row without keys.
///
/// ```
/// use foxton::{Database, Index, Options, Table};
///
/// // Name, city
/// const CUSTOMERS: Table<u64, (String, String)> = Table::new("customers");
/// const BY_NAME: Index<str, u64, (String, String)> =
///     Index::unique("customers_by_name", &CUSTOMERS, |_, (name, _), keys| keys.add(name));
/// const BY_CITY: Index<str, u64, (String, String)> =
///     Index::new("customers_by_city", &CUSTOMERS, |_, (_, city), keys| keys.add(city));
///
/// let mut options = Options::default();
/// options.indexes.add(&BY_NAME).add(&BY_CITY);
/// let db = Database::in_memory(options)?;
/// db.run(|tx| {
///     tx.put(&CUSTOMERS, &1, &("Ada".into(), "London".into()))?;
///     tx.put(&CUSTOMERS, &2, &("Grace".into(), "New York".into()))?;
///     tx.put(&CUSTOMERS, &3, &("Alan".into(), "London".into()))
/// })?;
///
/// let mut tx = db.begin()?;
/// let (id, (_, city)) = tx.get_by(&BY_NAME, "Grace")?.expect("she is there");
/// assert_eq!((id, &*city), (2, "New York"));
/// let mut london = Vec::new();
/// tx.all_by(&BY_CITY, "London").for_each(|_, id, _| london.push(id))?;
/// assert_eq!(london, [1, 3]);
///
/// // A second Ada is refused, and the transaction goes on.
/// let refused = tx.put(&CUSTOMERS, &4, &("Ada".into(), "Paris".into())).unwrap_err();
/// assert_eq!(refused.code(), "index_key_exists");
/// assert_eq!(tx.get(&CUSTOMERS, &4)?, None);
/// # Ok::<(), foxton::Error>(())
/// ```
///
/// # What the database does
///
/// Every write to the table updates its indexes in the same transaction: they are locked, undone
/// and made durable together. A [unique](Index::unique) index refuses a second row with one of its
/// keys. Reading by an index is as serializable as reading the table: an entry that was missing
/// from a range of index keys does not appear there later.
///
/// # Declaring an index
///
/// A program declares an index before it uses it: in [`Options::indexes`](crate::Options::indexes)
/// when it opens the database, or with [`Database::create_index`](crate::Database::create_index).
/// The database stores the fact that the index exists, and refuses a different declaration under
/// the same name. An index that was declared once and is not declared now is not maintained:
/// reading by it is an error. If it is unique, writing to the table is an error too.
/// [`Database::drop_index`](crate::Database::drop_index) removes it.
///
/// Of a table in memory the entries are not stored. They are extracted from the rows each time the
/// index is declared, so the function may change from one opening to the next. Of a paged table
/// they are stored, and extracted again only if the table was written to while the index was not
/// declared. A function that gives other keys then needs an index of another name, or the
/// old one is dropped. [`Database::check_indexes`](crate::Database::check_indexes) finds the
/// difference.
///
/// The function gets the decoded row as it is stored. It must return the same keys for the same row
/// every time. If it panics, the database undoes the write that called it, with its transaction.
pub struct Index<I: ?Sized, K: Key + ?Sized, V: Value + ?Sized> {
    name: &'static str,
    table: &'static str,
    component: Option<TableComponent>,
    is_unique: bool,
    version: u32,
    extract: fn(&K::Owned, &V::Owned, &Keys<I>),
}

impl<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized> Index<I, K, V> {
    /// Returns a non-unique index called `name` (1 to 255 bytes) on `table`: several rows may have
    /// one key.
    pub const fn new(
        name: &'static str,
        table: &Table<K, V>,
        extract: fn(&K::Owned, &V::Owned, &Keys<I>),
    ) -> Index<I, K, V> {
        Index {
            name,
            table: table.name(),
            component: table.component(),
            is_unique: false,
            version: 0,
            extract,
        }
    }

    /// Returns a unique index called `name` on `table`: each key belongs to at most one row.
    pub const fn unique(
        name: &'static str,
        table: &Table<K, V>,
        extract: fn(&K::Owned, &V::Owned, &Keys<I>),
    ) -> Index<I, K, V> {
        let mut index = Index::new(name, table, extract);
        index.is_unique = true;
        index
    }

    /// Sets a version of your own; the default is 0. A database that knows the index with another
    /// version refuses it, so a program notices that another program uses the name with another
    /// meaning.
    #[must_use]
    pub const fn version(mut self, version: u32) -> Index<I, K, V> {
        self.version = version;
        self
    }
}

impl<I: ?Sized, K: Key + ?Sized, V: Value + ?Sized> Index<I, K, V> {
    /// Returns the index's name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the name of the indexed table.
    pub const fn table(&self) -> &'static str {
        self.table
    }

    /// True if each key belongs to at most one row.
    pub const fn is_unique(&self) -> bool {
        self.is_unique
    }
}

impl<I: ?Sized, K: Key + ?Sized, V: Value + ?Sized> Clone for Index<I, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I: ?Sized, K: Key + ?Sized, V: Value + ?Sized> Copy for Index<I, K, V> {}

impl<I: ?Sized, K: Key + ?Sized, V: Value + ?Sized> fmt::Debug for Index<I, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index")
            .field("name", &self.name)
            .field("table", &self.table)
            .field("is_unique", &self.is_unique)
            .finish_non_exhaustive()
    }
}

/// Collects the index keys of one row.
///
/// A key may have any type that is stored as an `I` is, such as a `&String` for a `str`:
///
/// ```
/// use foxton::{Index, Table};
///
/// const USERS: Table<u64, (String, Option<String>)> = Table::new("users");
/// /// Contains only users with a mail address.
/// const BY_MAIL: Index<str, u64, (String, Option<String>)> =
///     Index::unique("users_by_mail", &USERS, |_, (_, mail), keys| {
///         if let Some(mail) = mail {
///             keys.add(&mail.to_lowercase());
///         }
///     });
/// ```
///
/// ```compile_fail
/// use foxton::{Database, Index, Options, Table};
/// const USERS: Table<u64, u64> = Table::new("users");
/// // The index is declared with u32 keys, but the function adds u64 keys.
/// const BY_AGE: Index<u32, u64, u64> = Index::new("by_age", &USERS, |_, age, keys| keys.add(age));
/// let mut options = Options::default();
/// options.indexes.add(&BY_AGE);
/// ```
pub struct Keys<I: ?Sized> {
    kind: EntryKind,
    taken: RefCell<ExtractedKeys>,
    // Contravariant, because it consumes an `I`. So an index is covariant in it, as a table is in
    // its key.
    types: PhantomData<fn(*const I)>,
    // Not Sync: a value belongs to the row being extracted.
    not_sync: PhantomData<Cell<()>>,
}

impl<I: ?Sized> fmt::Debug for Keys<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

impl<I: Key + ?Sized> Keys<I> {
    /// Adds an index key of the row. Adding the same key twice has no further effect.
    pub fn add<Q: Key + ?Sized>(&self, key: &Q) {
        const {
            assert!(
                Q::TYPE.hash() == I::TYPE.hash(),
                "the key is not of the type that the index is declared with"
            );
        }
        let mut taken = self.taken.borrow_mut();
        taken.add(|bytes| match self.kind {
            EntryKind::Unique => key.encode(bytes),
            EntryKind::Shared => key.encode_part(bytes),
        });
    }
}

/// Extracts index keys from a row's encoded key and value into the given list.
pub(crate) type Extract =
    dyn Fn(&[u8], &[u8], &mut ExtractedKeys) -> Result<(), Undecodable> + Send + Sync;

/// An index as a program declares it, without its types.
#[derive(Clone)]
pub(crate) struct DeclaredIndex {
    pub(crate) name: &'static str,
    pub(crate) table: &'static str,
    pub(crate) component: Option<TableComponent>,
    pub(crate) table_types: (TypeName, TypeName),
    pub(crate) key_type: TypeName,
    pub(crate) kind: EntryKind,
    pub(crate) version: u32,
    pub(crate) extract: Arc<Extract>,
}

impl fmt::Debug for DeclaredIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl<I: Key + ?Sized, K: Key + ?Sized, V: Value + ?Sized> Index<I, K, V> {
    /// Returns the format of the index's entries.
    pub(crate) fn kind(&self) -> EntryKind {
        match self.is_unique {
            true => EntryKind::Unique,
            false => EntryKind::Shared,
        }
    }

    pub(crate) fn own_version(&self) -> u32 {
        self.version
    }
}

impl<I, K, V> Index<I, K, V>
where
    I: Key + ?Sized + 'static,
    K: Key + ?Sized + 'static,
    V: Value + ?Sized + 'static,
{
    pub(crate) fn declared(&self) -> DeclaredIndex {
        let (kind, extract) = (self.kind(), self.extract);
        let read = move |key: &[u8], value: &[u8], into: &mut ExtractedKeys| {
            let (key, value) = (K::decode(key)?, V::decode(value)?);
            let keys = Keys {
                kind,
                taken: RefCell::new(std::mem::take(into)),
                types: PhantomData,
                not_sync: PhantomData,
            };
            extract(&key, &value, &keys);
            *into = keys.taken.into_inner();
            Ok(())
        };
        DeclaredIndex {
            name: self.name,
            table: self.table,
            component: self.component,
            table_types: (K::TYPE, V::TYPE),
            key_type: I::TYPE,
            kind,
            version: self.version,
            extract: Arc::new(read),
        }
    }
}

/// The indexes that a program declares when it opens a database.
#[derive(Clone, Default)]
pub struct Indexes(pub(crate) Vec<DeclaredIndex>);

impl fmt::Debug for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Indexes {
    /// True if no index is declared.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds `index` to the declared indexes.
    pub fn add<I, K, V>(&mut self, index: &Index<I, K, V>) -> &mut Indexes
    where
        I: Key + ?Sized + 'static,
        K: Key + ?Sized + 'static,
        V: Value + ?Sized + 'static,
    {
        self.0.push(index.declared());
        self
    }
}
