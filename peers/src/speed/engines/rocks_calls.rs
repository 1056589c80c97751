//! RocksDB's functions, of its header `rocksdb/c.h`, without `unsafe` for who calls.

use crate::Outcome;
use std::{
    ffi::{CStr, CString, c_char, c_uchar, c_void},
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr, slice,
};

macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[repr(C)]
        struct $name(c_void);
    )*};
}

opaque!(Options TxnDbOptions TxnOptions ReadOptions WriteOptions TxnDb FlushOptions Txn Pinned Snapshot);

type Failure = *mut c_char;

unsafe extern "C" {
    safe fn rocksdb_options_create() -> *mut Options;
    fn rocksdb_options_destroy(options: *mut Options);
    fn rocksdb_options_set_create_if_missing(options: *mut Options, value: c_uchar);
    fn rocksdb_options_set_manual_wal_flush(options: *mut Options, value: c_uchar);
    fn rocksdb_options_optimize_for_point_lookup(options: *mut Options, cache_mb: u64);
    safe fn rocksdb_transactiondb_options_create() -> *mut TxnDbOptions;
    fn rocksdb_transactiondb_options_destroy(options: *mut TxnDbOptions);
    fn rocksdb_transactiondb_options_set_num_stripes(options: *mut TxnDbOptions, stripes: usize);
    safe fn rocksdb_transaction_options_create() -> *mut TxnOptions;
    fn rocksdb_transaction_options_destroy(options: *mut TxnOptions);
    fn rocksdb_transaction_options_set_deadlock_detect(options: *mut TxnOptions, value: c_uchar);
    safe fn rocksdb_readoptions_create() -> *mut ReadOptions;
    fn rocksdb_readoptions_destroy(options: *mut ReadOptions);
    fn rocksdb_readoptions_set_snapshot(options: *mut ReadOptions, snapshot: *const Snapshot);
    safe fn rocksdb_writeoptions_create() -> *mut WriteOptions;
    fn rocksdb_writeoptions_destroy(options: *mut WriteOptions);
    fn rocksdb_writeoptions_set_sync(options: *mut WriteOptions, value: c_uchar);
    safe fn rocksdb_flushoptions_create() -> *mut FlushOptions;
    fn rocksdb_flushoptions_destroy(options: *mut FlushOptions);
    fn rocksdb_transactiondb_open(
        options: *const Options,
        txn_db_options: *const TxnDbOptions,
        name: *const c_char,
        failure: *mut Failure,
    ) -> *mut TxnDb;
    fn rocksdb_transactiondb_close(db: *mut TxnDb);
    fn rocksdb_transactiondb_flush(
        db: *mut TxnDb,
        options: *const FlushOptions,
        failure: *mut Failure,
    );
    fn rocksdb_transactiondb_create_snapshot(db: *mut TxnDb) -> *const Snapshot;
    fn rocksdb_transactiondb_release_snapshot(db: *mut TxnDb, snapshot: *const Snapshot);
    fn rocksdb_transactiondb_get_pinned(
        db: *mut TxnDb,
        options: *const ReadOptions,
        key: *const u8,
        key_size: usize,
        failure: *mut Failure,
    ) -> *mut Pinned;
    fn rocksdb_transaction_begin(
        db: *mut TxnDb,
        write: *const WriteOptions,
        options: *const TxnOptions,
        old: *mut Txn,
    ) -> *mut Txn;
    fn rocksdb_transaction_get_pinned_for_update(
        txn: *mut Txn,
        options: *const ReadOptions,
        key: *const u8,
        key_size: usize,
        exclusive: c_uchar,
        failure: *mut Failure,
    ) -> *mut Pinned;
    fn rocksdb_transaction_put(
        txn: *mut Txn,
        key: *const u8,
        key_size: usize,
        value: *const u8,
        size: usize,
        failure: *mut Failure,
    );
    fn rocksdb_transaction_commit(txn: *mut Txn, failure: *mut Failure);
    fn rocksdb_transaction_rollback(txn: *mut Txn, failure: *mut Failure);
    fn rocksdb_transaction_destroy(txn: *mut Txn);
    fn rocksdb_pinnableslice_value(pinned: *const Pinned, size: *mut usize) -> *const u8;
    fn rocksdb_pinnableslice_destroy(pinned: *mut Pinned);
    fn rocksdb_free(memory: *mut c_void);
}

/// What a call into RocksDB came to.
pub(crate) enum Answer<T = ()> {
    Done(T),
    /// The transaction must be ended, and may run again.
    GaveWay,
}

/// How RocksDB begins to say that another transaction is in the way: a deadlock, or a lock not had in time.
const GAVE_WAY: [&str; 3] = [
    "Resource busy",
    "Operation timed out",
    "Operation failed. Try again",
];

/// `done`, unless there is a message.
fn answer<T>(failure: Failure, done: T) -> Outcome<Answer<T>> {
    if failure.is_null() {
        return Ok(Answer::Done(done));
    }
    // SAFETY: a message that ends with a zero, which is ours to free.
    let message = unsafe { CStr::from_ptr(failure) }
        .to_string_lossy()
        .into_owned();
    // SAFETY: as above, and it is not used again.
    unsafe { rocksdb_free(failure.cast()) };
    match GAVE_WAY.iter().any(|&words| message.starts_with(words)) {
        true => Ok(Answer::GaveWay),
        false => Err(message.into()),
    }
}

fn done(failure: Failure) -> Outcome {
    match answer(failure, ())? {
        Answer::Done(()) => Ok(()),
        Answer::GaveWay => Err("RocksDB is busy".into()),
    }
}

/// How a database is opened.
pub(crate) struct Setup {
    pub(crate) manual_log: bool,
    pub(crate) sync: bool,
    pub(crate) stripes: usize,
    pub(crate) cache_mb: u64,
}

/// A TransactionDB. I1: the pointers are valid until it is dropped.
pub(crate) struct Database {
    db: *mut TxnDb,
    read: *mut ReadOptions,
    write: *mut WriteOptions,
    transaction: *mut TxnOptions,
}

// SAFETY: RocksDB lets any thread use a database; the options are only read once they are set.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

impl Database {
    pub(crate) fn open(folder: &Path, setup: &Setup) -> Outcome<Database> {
        let name = CString::new(folder.as_os_str().as_bytes())?;
        let (options, of_transactions) = (
            rocksdb_options_create(),
            rocksdb_transactiondb_options_create(),
        );
        let mut failure = ptr::null_mut();
        // SAFETY: options just made.
        unsafe { rocksdb_options_set_create_if_missing(options, 1) };
        // SAFETY: the same.
        unsafe { rocksdb_options_set_manual_wal_flush(options, setup.manual_log.into()) };
        // SAFETY: the same.
        unsafe { rocksdb_options_optimize_for_point_lookup(options, setup.cache_mb) };
        // SAFETY: the same.
        unsafe { rocksdb_transactiondb_options_set_num_stripes(of_transactions, setup.stripes) };
        // SAFETY: options just made, a string that ends with a zero, and a place for a message.
        let db = unsafe {
            rocksdb_transactiondb_open(options, of_transactions, name.as_ptr(), &mut failure)
        };
        // SAFETY: an open database has copies of its options.
        unsafe { rocksdb_options_destroy(options) };
        // SAFETY: the same.
        unsafe { rocksdb_transactiondb_options_destroy(of_transactions) };
        done(failure)?;
        let database = Database {
            db,
            read: rocksdb_readoptions_create(),
            write: rocksdb_writeoptions_create(),
            transaction: rocksdb_transaction_options_create(),
        };
        // SAFETY: options just made.
        unsafe { rocksdb_writeoptions_set_sync(database.write, setup.sync.into()) };
        // SAFETY: the same.
        unsafe { rocksdb_transaction_options_set_deadlock_detect(database.transaction, 1) };
        Ok(database)
    }

    /// Writes what is in memory to tables.
    pub(crate) fn flush(&self) -> Outcome {
        let (options, mut failure) = (rocksdb_flushoptions_create(), ptr::null_mut());
        // SAFETY: I1, options just made, and a place for a message.
        unsafe { rocksdb_transactiondb_flush(self.db, options, &mut failure) };
        // SAFETY: not used again.
        unsafe { rocksdb_flushoptions_destroy(options) };
        done(failure)
    }

    pub(crate) fn begin(&self) -> Transaction<'_> {
        // SAFETY: I1; no transaction to use again.
        let txn = unsafe {
            rocksdb_transaction_begin(self.db, self.write, self.transaction, ptr::null_mut())
        };
        Transaction {
            db: self,
            txn,
            open: true,
        }
    }

    /// What is committed now, to be read without locks.
    pub(crate) fn view(&self) -> View<'_> {
        let read = rocksdb_readoptions_create();
        // SAFETY: I1.
        let snapshot = unsafe { rocksdb_transactiondb_create_snapshot(self.db) };
        // SAFETY: options just made; the snapshot is released after them.
        unsafe { rocksdb_readoptions_set_snapshot(read, snapshot) };
        View {
            db: self,
            read,
            snapshot,
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: I1; what uses it borrows it, and so is gone. The same for the three below.
        unsafe { rocksdb_transactiondb_close(self.db) };
        // SAFETY: I1.
        unsafe { rocksdb_readoptions_destroy(self.read) };
        // SAFETY: I1.
        unsafe { rocksdb_writeoptions_destroy(self.write) };
        // SAFETY: I1.
        unsafe { rocksdb_transaction_options_destroy(self.transaction) };
    }
}

/// Lets `see` have what is pinned, or nothing if there is no row, and lets go of it.
fn seen<T>(pinned: *mut Pinned, see: impl FnOnce(&[u8]) -> T) -> T {
    if pinned.is_null() {
        return see(&[]);
    }
    let mut size = 0;
    // SAFETY: a slice that is ours until it is destroyed, and a place for a number.
    let bytes = unsafe { rocksdb_pinnableslice_value(pinned, &mut size) };
    // SAFETY: so many bytes are there, and stay until the slice is destroyed.
    let result = see(unsafe { slice::from_raw_parts(bytes, size) });
    // SAFETY: not used again.
    unsafe { rocksdb_pinnableslice_destroy(pinned) };
    result
}

/// A transaction of one thread. I2: `txn` is valid until it is dropped.
pub(crate) struct Transaction<'d> {
    db: &'d Database,
    txn: *mut Txn,
    open: bool,
}

impl Transaction<'_> {
    /// Reads under a lock.
    pub(crate) fn get<T>(
        &mut self,
        key: [u8; 8],
        exclusive: bool,
        see: impl FnOnce(&[u8]) -> T,
    ) -> Outcome<Answer<T>> {
        let (read, mut failure) = (self.db.read, ptr::null_mut());
        // SAFETY: I1, I2, the key's bytes, and a place for a message.
        let pinned = unsafe {
            rocksdb_transaction_get_pinned_for_update(
                self.txn,
                read,
                key.as_ptr(),
                key.len(),
                exclusive.into(),
                &mut failure,
            )
        };
        answer(failure, seen(pinned, see))
    }

    pub(crate) fn put(&mut self, key: [u8; 8], value: &[u8]) -> Outcome<Answer> {
        let (bytes, size, mut failure) = (value.as_ptr(), value.len(), ptr::null_mut());
        // SAFETY: I2, the bytes of key and value, and a place for a message.
        unsafe {
            rocksdb_transaction_put(self.txn, key.as_ptr(), key.len(), bytes, size, &mut failure)
        };
        answer(failure, ())
    }

    pub(crate) fn commit(mut self) -> Outcome<Answer> {
        let mut failure = ptr::null_mut();
        // SAFETY: I2, and a place for a message.
        unsafe { rocksdb_transaction_commit(self.txn, &mut failure) };
        self.open = !failure.is_null();
        answer(failure, ())
    }
}

impl Drop for Transaction<'_> {
    /// Rolls back what was not committed.
    fn drop(&mut self) {
        if self.open {
            let mut failure = ptr::null_mut();
            // SAFETY: I2, and a place for a message.
            unsafe { rocksdb_transaction_rollback(self.txn, &mut failure) };
            if let Err(error) = done(failure) {
                eprintln!("rolling back: {error}");
            }
        }
        // SAFETY: I2; not used again.
        unsafe { rocksdb_transaction_destroy(self.txn) };
    }
}

/// What was committed at one moment. I3: both pointers are valid until it is dropped.
pub(crate) struct View<'d> {
    db: &'d Database,
    read: *mut ReadOptions,
    snapshot: *const Snapshot,
}

impl View<'_> {
    pub(crate) fn get<T>(&self, key: [u8; 8], see: impl FnOnce(&[u8]) -> T) -> Outcome<T> {
        let mut failure = ptr::null_mut();
        // SAFETY: I1, I3, the key's bytes, and a place for a message.
        let pinned = unsafe {
            rocksdb_transactiondb_get_pinned(
                self.db.db,
                self.read,
                key.as_ptr(),
                key.len(),
                &mut failure,
            )
        };
        done(failure)?;
        Ok(seen(pinned, see))
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        // SAFETY: I3; not used again.
        unsafe { rocksdb_readoptions_destroy(self.read) };
        // SAFETY: I1, I3; not used again.
        unsafe { rocksdb_transactiondb_release_snapshot(self.db.db, self.snapshot) };
    }
}
