//! Hardware transactions: all reads and writes between begin and end happen at once, or not at all.
//!
//! With Intel's RTM the processor keeps in its first caches what a transaction reads and writes,
//! and watches for other threads that touch the same lines. On a conflict, an overflow or an
//! interrupt it undoes everything and continues at the beginning, with a status word that says why.
//! Nothing promises that a transaction ever commits, so there is always a second way, without it.
//!
//! # Availability
//!
//! [`rtm`](crate::htm::rtm) tries, once for each process, and everything else here needs its
//! result: a value of type [`Rtm`](crate::htm::Rtm), or the reason why there is none
//! ([`NotAvailable`](crate::htm::NotAvailable)). First it checks the processor's feature flag,
//! because without RTM its instructions are undefined. But the flag may lie: a virtual machine may
//! show it where the microcode aborts every transaction, and so may a processor whose RTM was
//! switched off for safety. So `rtm` begins some small transactions, and RTM is available if one of
//! them commits.
//!
//! `FOXTON_HTM=off` in the environment disables it; other processors and the model checkers do not
//! have it. [`BackendKind`](crate::latch::BackendKind) says by which means latches are elided,
//! which in a build for tests is software.
//!
//! # What a transaction may do
//!
//! Anything that safe Rust may. System calls, missing pages, `pause` and a few more instructions
//! abort it. So does too much of anything: more lines than fit, or more time than until the next
//! interrupt. Waiting inside for another thread is useless: the awaited write aborts the
//! transaction.
//!
//! # Why it is sound
//!
//! * I1  *An attempt that aborts did not happen.* The processor restores every register and every
//!   byte of memory, stack and thread-locals included, as they were at the beginning. No other
//!   thread has seen the writes. Then it continues behind the one instruction that began, with a
//!   status in one register. So to the compiler [`Rtm::begin`](crate::htm::Rtm::begin) is a block
//!   of assembly that was executed once, writes that register, and may have taken some time. It is
//!   no `setjmp`: that keeps the changed memory, and so needs to be known to the compiler; here
//!   nothing has changed. It does not matter either that functions entered meanwhile have
//!   overwritten frames that were left.
//! * I2  *An attempt that commits happened at once.* It began, and everything it read was unchanged
//!   when it ended; from then on all its writes are seen. Other threads may have run meanwhile, but
//!   none whose order relative to it could be observed.
//! * I3  *No attempt continues with an inconsistent view.* If another thread writes a line that was
//!   read, the transaction aborts at once, not at its end. So code inside never sees half of
//!   another's change, not even in an attempt that is going to abort.
//! * I4  *No access is moved out from between begin and end.* Every block of assembly here may read
//!   and write all memory, as far as the compiler knows.
//! * I5  *A transaction ends on the thread on which it began.* A
//!   [`HardwareTransaction`](crate::htm::HardwareTransaction) is neither `Send` nor `Sync`. A
//!   forgotten one continues until something aborts it, and then it did not happen (I1).
//! * I6  *A commit orders like a locked instruction* (as the processor's manual says): a thread
//!   that sees the commit sees what came before it, and so does each thread that comes after that
//!   one.
//!
//! Code inside that uses the light side of [`asymmetric`](crate::asymmetric) needs no more. The
//! heavy side interrupts every processor, which aborts transactions; one that committed before was
//! seen (I2, I6).
//!
//! # Differences from the paper
//!
//! Document 001 calls the compiler's intrinsics. Rust has them only in its nightly version, so this
//! is inline assembly. Two statements of its guide are not relied on: that transactions nest seven
//! deep ([`Rtm::nesting_limit`](crate::htm::Rtm::nesting_limit) tries), and that a cause sets one
//! bit ([`Abort::cause`](crate::htm::Abort::cause) chooses one).

mod abort;
mod instructions;
mod adaptive;
mod stats;
pub(crate) mod backend;

pub use abort::{Abort, Cause};
pub use stats::{Elisions, ticks};

pub(crate) use adaptive::{ElisionTrials, SITES, WorkerTurns};
pub(crate) use stats::{AttemptTimer, ElisionChoice, ElisionStats};

use crate::shim::AtomicU8;
use std::ffi::OsStr;
use std::fmt;
use std::marker::PhantomData;
use std::sync::OnceLock;

/// The environment variable that enables transactions: `on`, the default, or `off`.
pub const SWITCH: &str = "FOXTON_HTM";

/// Reason why there are no hardware transactions here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NotAvailable {
    /// This program was built for processors that have none, or for a model checker.
    Build,
    /// The processor has none, or does not show it.
    Processor,
    /// The processor shows them, but every one that was tried aborted.
    AlwaysAborts,
    /// [`SWITCH`] is `off`.
    SwitchedOff,
    /// [`SWITCH`] is neither `on` nor `off`, so its meaning is unknown.
    SwitchNotUnderstood,
}

impl fmt::Display for NotAvailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Build => "not available: not built for a processor that has it",
            Self::Processor => "not available: the processor does not have it",
            Self::AlwaysAborts => "not available: every transaction that was tried aborted",
            Self::SwitchedOff => "not available: FOXTON_HTM is off",
            Self::SwitchNotUnderstood => "not available: FOXTON_HTM is neither on nor off",
        })
    }
}

impl std::error::Error for NotAvailable {}

/// Proof that hardware transactions commit here. Its owner may begin them.
#[derive(Debug, Clone, Copy)]
pub struct Rtm(instructions::RtmInstructions);

/// Proof that the prefixes of lock elision begin transactions here; see [`elided`](crate::latch).
#[derive(Debug, Clone, Copy)]
pub struct Hle(instructions::HleInstructions);

/// Returns the proof of hardware transactions, found by trying at the first call.
///
/// ```
/// use foxton_sync::htm;
///
/// match htm::rtm() {
///     Ok(rtm) => println!("nested up to {}", rtm.nesting_limit()),
///     Err(reason) => println!("{reason}"),
/// }
/// ```
///
/// # Errors
/// The reason why there are none.
pub fn rtm() -> Result<Rtm, NotAvailable> {
    // A fact about the processor, not state: it is the same for all databases.
    static FOUND: OnceLock<Result<Rtm, NotAvailable>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        switch()?;
        let rtm = Rtm(instructions::RtmInstructions::detect()?);
        ever_commits(|| rtm.run(|| ()).is_ok())?;
        Ok(rtm)
    })
}

/// Returns the proof that the prefixes of lock elision begin transactions, found by trying at the
/// first call. Where they do not, they are still accepted, and mean nothing.
///
/// # Errors
/// The reason why there are none.
pub fn hle() -> Result<Hle, NotAvailable> {
    static FOUND: OnceLock<Result<Hle, NotAvailable>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        switch()?;
        let hle = Hle(instructions::HleInstructions::detect()?);
        ever_commits(|| hle.0.elides())?;
        Ok(hle)
    })
}

/// Reads [`SWITCH`], once: latches that are made at different times are of one kind.
pub(crate) fn switch() -> Result<(), NotAvailable> {
    static FOUND: OnceLock<Result<(), NotAvailable>> = OnceLock::new();
    *FOUND.get_or_init(|| switched_on(std::env::var_os(SWITCH).as_deref()))
}

fn switched_on(switch: Option<&OsStr>) -> Result<(), NotAvailable> {
    match switch.map(OsStr::to_str) {
        None | Some(Some("on" | "")) => Ok(()),
        Some(Some("off")) => Err(NotAvailable::SwitchedOff),
        Some(_) => Err(NotAvailable::SwitchNotUnderstood),
    }
}

/// One success is enough, and one failure means nothing: an interrupt may come any time.
fn ever_commits(mut attempt: impl FnMut() -> bool) -> Result<(), NotAvailable> {
    const ATTEMPTS: usize = 256;
    let committed = (0..ATTEMPTS).any(|_| attempt());
    committed.then_some(()).ok_or(NotAvailable::AlwaysAborts)
}

impl Rtm {
    /// Deeper nests are not tried.
    const MAX_NESTING: u32 = 64;

    /// Begins a transaction, or returns why it aborted: perhaps at once, perhaps after much of what
    /// follows was done and undone.
    ///
    /// ```
    /// use foxton_sync::htm;
    ///
    /// let Ok(rtm) = htm::rtm() else { return };
    /// let mut sum = 0;
    /// for _ in 0..1_000 {
    ///     match rtm.begin() {
    ///         Ok(transaction) => {
    ///             sum += 1;
    ///             transaction.commit();
    ///             break;
    ///         }
    ///         Err(abort) => assert_eq!(sum, 0, "{abort}"),
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// The reason of the abort.
    #[inline(always)]
    pub fn begin(self) -> Result<HardwareTransaction, Abort> {
        match self.0.begin() {
            Abort::NONE => Ok(HardwareTransaction {
                rtm: self,
                here: PhantomData,
            }),
            status => Err(Abort::of_status(status)),
        }
    }

    /// Calls `body` in a transaction, once.
    ///
    /// # Errors
    /// The reason of the abort; then `body` was not called.
    #[inline(always)]
    pub fn run<R>(self, body: impl FnOnce() -> R) -> Result<R, Abort> {
        let transaction = self.begin()?;
        let result = body();
        transaction.commit();
        Ok(result)
    }

    /// True if the caller is inside a transaction.
    #[inline(always)]
    pub fn is_inside(self) -> bool {
        self.0.is_inside()
    }

    /// Maximum depth of nested transactions, the outermost included, found by trying; 64 where the
    /// limit is beyond that.
    ///
    /// They are one: only the outermost end commits, and an abort of one aborts all.
    pub fn nesting_limit(self) -> u32 {
        let fits = |depth| ever_commits(|| self.nest(depth)).is_ok();
        let beyond = (1..=Self::MAX_NESTING).find(|&depth| !fits(depth));
        beyond.map_or(Self::MAX_NESTING, |depth| depth - 1)
    }

    fn nest(self, depth: u32) -> bool {
        let Ok(transaction) = self.begin() else {
            return false; // Of the outermost: all others are undone with it.
        };
        let fits = depth <= 1 || self.nest(depth - 1);
        transaction.commit();
        fits
    }
}

impl Hle {
    /// Exchanges `word` for 1, with the prefix that elides it. Returns the previous value.
    #[inline(always)]
    pub(crate) fn acquire(self, word: &AtomicU8) -> u8 {
        self.0.acquire(word)
    }

    /// Writes 0 to `word`, with the prefix that ends what [`acquire`](Self::acquire) began.
    #[inline(always)]
    pub(crate) fn release(self, word: &AtomicU8) {
        self.0.release(word);
    }
}

/// A transaction that was begun on this thread and has not ended.
///
/// Dropped without a commit, by a panic too, it aborts: then nothing happened, not even the panic,
/// and [`Rtm::begin`] returns with [`HardwareTransaction::DROPPED`].
///
/// ```compile_fail,E0277
/// fn assert_send<T: Send>() {}
/// assert_send::<foxton_sync::htm::HardwareTransaction>();
/// ```
#[derive(Debug)]
#[must_use = "dropped, it aborts"]
pub struct HardwareTransaction {
    rtm: Rtm,
    here: PhantomData<*const ()>,
}

impl HardwareTransaction {
    /// Code with which a dropped transaction aborts.
    pub const DROPPED: u8 = 0xFE;

    /// Commits, or does not return: then it aborted.
    #[inline(always)]
    pub fn commit(self) {
        let rtm = self.rtm;
        std::mem::forget(self);
        // SAFETY: `self` was begun on this thread and has not ended: it is consumed here (I5).
        unsafe { rtm.0.end() }
    }

    /// Undoes everything since the outermost beginning, which returns with `CODE`.
    #[inline(always)]
    pub fn abort<const CODE: u8>(self) -> ! {
        self.rtm.0.abort::<CODE>();
        unreachable!("nothing comes after an abort: a transaction goes on (I5)")
    }
}

impl Drop for HardwareTransaction {
    fn drop(&mut self) {
        self.rtm.0.abort::<{ Self::DROPPED }>();
    }
}

#[cfg(test)]
mod tests;
