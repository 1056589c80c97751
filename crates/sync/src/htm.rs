//! Transactions of the processor: what is read and written between begin and end happens at once, or
//! not at all.
//!
//! Intel's RTM: the processor keeps what a transaction reads and writes in its first caches and watches
//! for others who touch the same lines. If somebody does, or there is no room, or an interrupt comes, it
//! forgets all of it and goes on at the beginning, where a word says why. Nothing promises that a
//! transaction ever commits, so there is always a second way, without it.
//!
//! # Whether there is any
//!
//! [`rtm`](crate::htm::rtm) tries, once for each process, and everything else here needs what it returns: a value of type
//! [`Rtm`](crate::htm::Rtm), or the reason why there is none ([`NotAvailable`](crate::htm::NotAvailable)). First the processor is asked, since without
//! RTM its instructions are undefined. But the flag lies: a virtual machine may show it where the
//! microcode has every transaction abort, and so may a processor whose RTM was switched off for safety. So
//! some small transactions are begun, and there is RTM where one of them commits. `FOXTON_HTM=off` in the
//! environment says that there is none; so do other processors, and the model checkers.
//! What latches are elided by, which in a build for tests is software, [`Means`](crate::latch::Means) says.
//!
//! # What a transaction may do
//!
//! Anything that safe Rust may. System calls, pages that are not there, `pause` and a few more
//! instructions abort it; so does too much of anything: more lines than fit, longer than to the next
//! interrupt. Waiting inside for another thread is of no use: what one waits for is written by somebody
//! else, and that aborts it.
//!
//! # Why it is sound
//!
//! * I1  *An attempt that aborts did not happen.* The processor puts back every register and every byte of
//!   memory as they were at the beginning, the stack and thread-locals included, and nobody else has seen
//!   what was written. Then it goes on behind the one instruction that began, with a status in one register. So
//!   to the compiler [`Rtm::begin`](crate::htm::Rtm::begin) is a block of assembly that was executed once, writes that register, and
//!   may have taken its time. It is no `setjmp`: that keeps memory as it has become, and so needs to be
//!   known to the compiler; here nothing has become. It does not matter that functions entered meanwhile
//!   have overwritten frames that were left, either.
//! * I2  *An attempt that commits happened at once.* It began, and everything it read was still so when it
//!   ended; all its writes are seen from then on. Others may have run meanwhile, but none whose order with
//!   it could be told.
//! * I3  *No attempt goes on with what does not fit together.* A line that was read and that somebody else
//!   writes aborts the transaction at once, not at its end. So inside one never sees half of another's
//!   change, not even in an attempt that is going to abort.
//! * I4  *Between begin and end nothing is moved out.* Every block of assembly here may read and write all
//!   memory, as far as the compiler knows.
//! * I5  *Who ends a transaction began it on the same thread.* A [`HardwareTransaction`](crate::htm::HardwareTransaction) is neither `Send` nor
//!   `Sync`. One that is forgotten goes on until something aborts it, and then it did not happen (I1).
//! * I6  *A commit orders like a locked instruction* (the manual of the processor says so): what came before
//!   is seen by who sees the commit, and both by whoever comes after.
//!
//! What uses the cheap side of [`asymmetric`](crate::asymmetric) inside needs no more: the dear side interrupts every
//! processor, which aborts transactions; one that committed before was seen (I2, I6).
//!
//! # Differences from the paper
//!
//! Document 001 calls the compiler's intrinsics. Rust has them in its nightly form only, so this is inline
//! assembly. Two things that its guide says are not relied on: that transactions nest seven deep
//! ([`Rtm::nesting_limit`](crate::htm::Rtm::nesting_limit) tries), and that a cause sets one bit ([`Abort::cause`](crate::htm::Abort::cause) says which counts).

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

/// The environment variable that says whether to use what there is: `on`, which it is unless set, or `off`.
pub const SWITCH: &str = "FOXTON_HTM";

/// Why there are no transactions of the processor here.
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
    /// [`SWITCH`] is neither `on` nor `off`, so nobody knows what was wanted.
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

/// That transactions of the processor commit here. Whoever has one may begin them.
#[derive(Debug, Clone, Copy)]
pub struct Rtm(instructions::RtmInstructions);

/// That the prefixes of lock elision begin transactions here; see [`elided`](crate::latch).
#[derive(Debug, Clone, Copy)]
pub struct Hle(instructions::HleInstructions);

/// Whether there are transactions here, found by trying at the first call.
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
/// The reason why not.
pub fn rtm() -> Result<Rtm, NotAvailable> {
    // A fact about the processor, not state: it is the same for all.
    static FOUND: OnceLock<Result<Rtm, NotAvailable>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        switch()?;
        let rtm = Rtm(instructions::RtmInstructions::detect()?);
        ever_commits(|| rtm.run(|| ()).is_ok())?;
        Ok(rtm)
    })
}

/// Whether the prefixes of lock elision begin transactions here, found by trying at the first call.
/// Where they do not, they are still accepted, and mean nothing.
///
/// # Errors
/// The reason why not.
pub fn hle() -> Result<Hle, NotAvailable> {
    static FOUND: OnceLock<Result<Hle, NotAvailable>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        switch()?;
        let hle = Hle(instructions::HleInstructions::detect()?);
        ever_commits(|| hle.0.elides())?;
        Ok(hle)
    })
}

/// What [`SWITCH`] says. Read once: latches that are made at different times are of one kind.
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
    /// Deeper nests are not looked for.
    const MAX_NESTING: u32 = 64;

    /// Begins a transaction, or comes back to say why it aborted: perhaps at once, perhaps after much of
    /// what follows was done and forgotten.
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
    /// Why it aborted.
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
    /// Why it aborted; then `body` was not called.
    #[inline(always)]
    pub fn run<R>(self, body: impl FnOnce() -> R) -> Result<R, Abort> {
        let transaction = self.begin()?;
        let result = body();
        transaction.commit();
        Ok(result)
    }

    /// Whether the caller is inside a transaction.
    #[inline(always)]
    pub fn is_inside(self) -> bool {
        self.0.is_inside()
    }

    /// How many transactions may be begun inside each other, the outermost included, found by trying; 64
    /// where that is not enough to find the limit.
    ///
    /// They are one: only the outermost end commits, and what aborts one aborts all.
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
    /// Exchanges `word` for 1, with the prefix that elides it. Returns what it was.
    #[inline(always)]
    pub(crate) fn acquire(self, word: &AtomicU8) -> u8 {
        self.0.acquire(word)
    }

    /// Writes 0 to `word`, with the prefix that ends what [`take`](Self::acquire) began.
    #[inline(always)]
    pub(crate) fn release(self, word: &AtomicU8) {
        self.0.release(word);
    }
}

/// A transaction that was begun on this thread and goes on.
///
/// Dropped without a commit, by a panic too, it aborts: then nothing happened, the panic neither, and
/// [`Rtm::begin`] returns with [`HardwareTransaction::DROPPED`].
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
    /// The code with which a transaction aborts that is dropped.
    pub const DROPPED: u8 = 0xFE;

    /// Commits, or does not come back: then it aborted.
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
