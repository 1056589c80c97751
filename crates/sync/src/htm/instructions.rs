//! The instructions, where the processor has any.
//!
//! Each is a block of assembly that may read and write all memory as far as the compiler knows, so
//! that no access is moved across (I4 of the module). A race detector knows as little of
//! transactions as a model checker does, and would report races: it gets none.

#[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri, foxton_tsan))))]
mod real {
    use crate::htm::NotAvailable;
    use crate::shim::AtomicU8;
    use std::arch::{asm, x86_64};

    /// Leaf 7 of `cpuid`: `ebx`.
    const HLE: u32 = 1 << 4;
    const RTM: u32 = 1 << 11;

    /// Proof that the processor shows RTM, so that its instructions are defined.
    #[derive(Debug, Clone, Copy)]
    pub(in crate::htm) struct RtmInstructions(());

    /// Proof that the processor shows HLE, so that `xtest` is defined.
    #[derive(Debug, Clone, Copy)]
    pub(in crate::htm) struct HleInstructions(());

    fn shows(feature: u32) -> Result<(), NotAvailable> {
        const FEATURES: u32 = 7;
        let (deepest, _) = x86_64::__get_cpuid_max(0);
        let shown = deepest >= FEATURES && x86_64::__cpuid_count(FEATURES, 0).ebx & feature != 0;
        shown.then_some(()).ok_or(NotAvailable::Processor)
    }

    /// True if the caller is in a transaction.
    ///
    /// # Safety
    ///
    /// The processor shows RTM or HLE.
    #[inline(always)]
    unsafe fn is_inside() -> bool {
        let inside: u8;
        // SAFETY: the instruction is defined where either is shown, and writes flags only.
        unsafe { asm!("xtest", "setnz {}", out(reg_byte) inside, options(nostack)) }
        inside != 0
    }

    // The prefixes are defined everywhere, and mean something where HLE is shown. So these need no
    // proof, and are tested on every processor.

    #[inline(always)]
    pub(in crate::htm) fn acquire(word: &AtomicU8) -> u8 {
        let mut value = 1u8;
        // SAFETY: an exchange of an atomic word, also without the prefix; if it is elided, an abort
        // returns to before it (I1).
        unsafe {
            asm!(
                "xacquire xchg byte ptr [{word}], {value}",
                word = in(reg) word.as_ptr(),
                value = inout(reg_byte) value,
                options(nostack)
            );
        }
        value
    }

    #[inline(always)]
    pub(in crate::htm) fn release(word: &AtomicU8) {
        // SAFETY: a store to an atomic word, also without the prefix.
        unsafe {
            asm!(
                "xrelease mov byte ptr [{word}], 0",
                word = in(reg) word.as_ptr(),
                options(nostack)
            );
        }
    }

    impl RtmInstructions {
        pub(in crate::htm) fn detect() -> Result<Self, NotAvailable> {
            shows(RTM).map(Self)
        }

        /// Returns all ones once a transaction has begun, or the status of its abort.
        #[inline(always)]
        pub(in crate::htm) fn begin(self) -> u32 {
            let status: u32;
            // SAFETY: `self` shows that the instruction is defined. An abort returns to the label
            // with everything but `eax` as it was (I1), and `eax` is an output.
            unsafe {
                asm!(
                    "mov eax, -1",
                    "xbegin 2f",
                    "2:",
                    out("eax") status,
                    options(nostack)
                );
            }
            status
        }

        /// Ends the innermost transaction.
        ///
        /// # Safety
        ///
        /// The caller is inside a transaction.
        #[inline(always)]
        pub(in crate::htm) unsafe fn end(self) {
            // SAFETY: the caller is inside; outside it would be a fault.
            unsafe { asm!("xend", options(nostack)) }
        }

        /// Aborts with `CODE`; outside a transaction it does nothing.
        #[inline(always)]
        pub(in crate::htm) fn abort<const CODE: u8>(self) {
            // SAFETY: defined, as `self` shows; what it undoes did not happen (I1).
            unsafe { asm!("xabort {code}", code = const CODE, options(nostack)) }
        }

        #[inline(always)]
        pub(in crate::htm) fn is_inside(self) -> bool {
            // SAFETY: `self` shows RTM.
            unsafe { is_inside() }
        }
    }

    impl HleInstructions {
        pub(in crate::htm) fn detect() -> Result<Self, NotAvailable> {
            shows(HLE).map(Self)
        }

        /// True if a latch acquired and released with the prefixes was elided this time.
        pub(in crate::htm) fn elides(self) -> bool {
            let word = AtomicU8::new(0);
            self.acquire(&word);
            // SAFETY: `self` shows HLE.
            let inside = unsafe { is_inside() };
            self.release(&word);
            inside
        }

        #[inline(always)]
        pub(in crate::htm) fn acquire(self, word: &AtomicU8) -> u8 {
            acquire(word)
        }

        #[inline(always)]
        pub(in crate::htm) fn release(self, word: &AtomicU8) {
            release(word);
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri, foxton_tsan)))))]
mod real {
    use crate::htm::NotAvailable;
    use crate::shim::AtomicU8;

    /// Never made: there are no such instructions.
    #[derive(Debug, Clone, Copy)]
    pub(in crate::htm) enum RtmInstructions {}

    /// Never made: there are no such instructions.
    #[derive(Debug, Clone, Copy)]
    pub(in crate::htm) enum HleInstructions {}

    impl RtmInstructions {
        pub(in crate::htm) fn detect() -> Result<Self, NotAvailable> {
            Err(NotAvailable::Build)
        }

        pub(in crate::htm) fn begin(self) -> u32 {
            match self {}
        }

        /// # Safety
        ///
        /// None: it is never called.
        pub(in crate::htm) unsafe fn end(self) {
            match self {}
        }

        pub(in crate::htm) fn abort<const CODE: u8>(self) {
            match self {}
        }

        pub(in crate::htm) fn is_inside(self) -> bool {
            match self {}
        }
    }

    impl HleInstructions {
        pub(in crate::htm) fn detect() -> Result<Self, NotAvailable> {
            Err(NotAvailable::Build)
        }

        pub(in crate::htm) fn elides(self) -> bool {
            match self {}
        }

        pub(in crate::htm) fn acquire(self, _word: &AtomicU8) -> u8 {
            match self {}
        }

        pub(in crate::htm) fn release(self, _word: &AtomicU8) {
            match self {}
        }
    }
}

pub(super) use real::{HleInstructions, RtmInstructions};

#[cfg(all(
    test,
    target_arch = "x86_64",
    not(any(loom, shuttle, miri, foxton_tsan))
))]
mod tests {
    use super::real::{acquire, release};
    use crate::shim::{AtomicU8, Ordering};

    /// Elided or not, and on processors that ignore the prefixes: to the thread itself the word is
    /// taken.
    #[test]
    fn a_word_taken_with_prefixes_is_an_exchange() {
        let word = AtomicU8::new(0);
        for _ in 0..1_000 {
            assert_eq!(acquire(&word), 0);
            assert_eq!(word.load(Ordering::Relaxed), 1);
            assert_eq!(acquire(&word), 1);
            release(&word);
            assert_eq!(word.load(Ordering::Relaxed), 0);
        }
    }
}
