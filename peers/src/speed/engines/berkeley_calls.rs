//! Berkeley DB's functions, as `native/berkeley.c` makes them, without `unsafe` for who calls.
//!
//! An [`Environment`] and its table are opened with `DB_THREAD`, so that any thread may use them.

use crate::Outcome;
use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    marker::PhantomData,
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr,
};

/// Result of a call into Berkeley DB.
pub(crate) enum Answer {
    Done,
    /// The transaction must be ended, and may run again.
    GaveWay,
}

#[repr(C)]
struct Env(c_void);
#[repr(C)]
struct Db(c_void);
#[repr(C)]
struct Txn(c_void);

unsafe extern "C" {
    fn peers_berkeley_open(
        home: *const c_char,
        durability: c_int,
        env: *mut *mut Env,
        db: *mut *mut Db,
    ) -> c_int;
    fn peers_berkeley_close(env: *mut Env, db: *mut Db) -> c_int;
    fn peers_berkeley_begin(env: *mut Env, txn: *mut *mut Txn) -> c_int;
    fn peers_berkeley_commit(txn: *mut Txn) -> c_int;
    fn peers_berkeley_abort(txn: *mut Txn) -> c_int;
    fn peers_berkeley_get(
        db: *mut Db,
        txn: *mut Txn,
        key: *const u8,
        value: *mut u8,
        size: u32,
        for_update: c_int,
    ) -> c_int;
    fn peers_berkeley_put(
        db: *mut Db,
        txn: *mut Txn,
        key: *const u8,
        value: *const u8,
        size: u32,
    ) -> c_int;
    fn peers_berkeley_locks_open(home: *const c_char, env: *mut *mut Env) -> c_int;
    fn peers_berkeley_locker(env: *mut Env, locker: *mut u32) -> c_int;
    fn peers_berkeley_locker_free(env: *mut Env, locker: u32) -> c_int;
    fn peers_berkeley_lock(
        env: *mut Env,
        locker: u32,
        key: *const u8,
        exclusive: c_int,
        intention: c_int,
    ) -> c_int;
    fn peers_berkeley_release(env: *mut Env, locker: u32) -> c_int;
    safe fn peers_berkeley_gave_way(error: c_int) -> c_int;
    safe fn peers_berkeley_message(error: c_int) -> *const c_char;
    safe fn peers_berkeley_version() -> *const c_char;
}

fn text(text: *const c_char) -> String {
    // SAFETY: both functions that this is given the answers of return strings that end with a zero.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

pub(crate) fn version() -> String {
    text(peers_berkeley_version())
}

fn answer(error: c_int) -> Outcome<Answer> {
    match error {
        0 => Ok(Answer::Done),
        error if peers_berkeley_gave_way(error) != 0 => Ok(Answer::GaveWay),
        error => Err(text(peers_berkeley_message(error)).into()),
    }
}

/// For calls that never have to give way.
fn done(error: c_int) -> Outcome {
    match answer(error)? {
        Answer::Done => Ok(()),
        Answer::GaveWay => Err(text(peers_berkeley_message(error)).into()),
    }
}

/// An open environment, with or without a table. I1: the pointers are valid until it is dropped.
pub(crate) struct Environment {
    env: *mut Env,
    db: *mut Db,
}

// SAFETY: Berkeley DB lets any thread use handles that were opened with DB_THREAD, as `berkeley.c`
// does.
unsafe impl Send for Environment {}
// SAFETY: as above.
unsafe impl Sync for Environment {}

impl Environment {
    /// With a table, transactions and a log; `durability` as `berkeley.c` numbers it.
    pub(crate) fn open(home: &Path, durability: c_int) -> Outcome<Environment> {
        let home = CString::new(home.as_os_str().as_bytes())?;
        let mut made = Environment::none();
        // SAFETY: a string that ends with a zero, and two places for pointers.
        let error =
            unsafe { peers_berkeley_open(home.as_ptr(), durability, &mut made.env, &mut made.db) };
        made.if_done(error)
    }

    /// Only with locks.
    pub(crate) fn open_locks(home: &Path) -> Outcome<Environment> {
        let home = CString::new(home.as_os_str().as_bytes())?;
        let mut made = Environment::none();
        // SAFETY: a string that ends with a zero, and a place for a pointer.
        let error = unsafe { peers_berkeley_locks_open(home.as_ptr(), &mut made.env) };
        made.if_done(error)
    }

    fn none() -> Environment {
        Environment {
            env: ptr::null_mut(),
            db: ptr::null_mut(),
        }
    }

    /// A handle that failed to open is not closed: the program ends with the error.
    fn if_done(self, error: c_int) -> Outcome<Environment> {
        match done(error) {
            Ok(()) => Ok(self),
            Err(error) => {
                std::mem::forget(self);
                Err(error)
            }
        }
    }

    pub(crate) fn begin(&self) -> Outcome<Transaction<'_>> {
        let mut txn = ptr::null_mut();
        // SAFETY: I1, and a place for a pointer.
        done(unsafe { peers_berkeley_begin(self.env, &mut txn) })?;
        Ok(Transaction {
            env: self,
            txn,
            here: PhantomData,
        })
    }

    /// A locker: whoever holds locks.
    pub(crate) fn locker(&self) -> Outcome<Locker<'_>> {
        let mut id = 0;
        // SAFETY: I1, and a place for a number.
        done(unsafe { peers_berkeley_locker(self.env, &mut id) })?;
        Ok(Locker { env: self, id })
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        // SAFETY: I1; whatever is used of it borrows it, and so is gone.
        let error = unsafe { peers_berkeley_close(self.env, self.db) };
        if let Err(error) = done(error) {
            eprintln!("closing Berkeley DB: {error}");
        }
    }
}

/// A transaction of one thread. I2: `txn` is valid until it is ended, and then null.
pub(crate) struct Transaction<'e> {
    env: &'e Environment,
    txn: *mut Txn,
    /// Not for another thread.
    here: PhantomData<*mut ()>,
}

impl Transaction<'_> {
    /// Fills `value` with the row at `key`, which is there and as long.
    pub(crate) fn get(
        &mut self,
        key: [u8; 8],
        value: &mut [u8],
        for_update: bool,
    ) -> Outcome<Answer> {
        let (bytes, size) = (value.as_mut_ptr(), u32::try_from(value.len())?);
        // SAFETY: I1, I2; eight bytes, and as many as are said.
        answer(unsafe {
            peers_berkeley_get(
                self.env.db,
                self.txn,
                key.as_ptr(),
                bytes,
                size,
                for_update.into(),
            )
        })
    }

    pub(crate) fn put(&mut self, key: [u8; 8], value: &[u8]) -> Outcome<Answer> {
        let (bytes, size) = (value.as_ptr(), u32::try_from(value.len())?);
        // SAFETY: I1, I2; eight bytes, and as many as are said.
        answer(unsafe { peers_berkeley_put(self.env.db, self.txn, key.as_ptr(), bytes, size) })
    }

    pub(crate) fn commit(mut self) -> Outcome<Answer> {
        let txn = std::mem::replace(&mut self.txn, ptr::null_mut());
        // SAFETY: I2; it is not used again.
        answer(unsafe { peers_berkeley_commit(txn) })
    }
}

impl Drop for Transaction<'_> {
    /// Rolls back what was not committed.
    fn drop(&mut self) {
        if self.txn.is_null() {
            return;
        }
        // SAFETY: I2; it is not used again.
        if let Err(error) = done(unsafe { peers_berkeley_abort(self.txn) }) {
            eprintln!("rolling back: {error}");
        }
    }
}

/// A holder of locks.
pub(crate) struct Locker<'e> {
    env: &'e Environment,
    id: u32,
}

impl Locker<'_> {
    pub(crate) fn lock(
        &mut self,
        key: [u8; 8],
        exclusive: bool,
        intention: bool,
    ) -> Outcome<Answer> {
        // SAFETY: I1, and eight bytes.
        answer(unsafe {
            peers_berkeley_lock(
                self.env.env,
                self.id,
                key.as_ptr(),
                exclusive.into(),
                intention.into(),
            )
        })
    }

    pub(crate) fn release(&mut self) -> Outcome {
        // SAFETY: I1.
        done(unsafe { peers_berkeley_release(self.env.env, self.id) })
    }
}

impl Drop for Locker<'_> {
    fn drop(&mut self) {
        // SAFETY: I1.
        if let Err(error) = done(unsafe { peers_berkeley_locker_free(self.env.env, self.id) }) {
            eprintln!("giving a locker back: {error}");
        }
    }
}
