//! Number of cores.

/// Number of cores this process may run on: at least 1, and no more than its affinity and quota
/// allow.
///
/// Asks the operating system each time; keep the answer.
///
/// ```
/// assert!(foxton_sync::topology::cores() >= 1);
/// ```
pub fn cores() -> usize {
    // If the system has no answer, one core is the safe guess: it makes waits yield.
    std::thread::available_parallelism().map_or(1, usize::from)
}
