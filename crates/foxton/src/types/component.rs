//! Components: where the rows of a table are.

/// Where the rows of a table are, chosen when the table is made. Both kinds of table take part in
/// one transaction, with the same locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum TableComponent {
    /// In memory, all of them.
    #[default]
    Resident,
    /// In pages of a file, which may be larger than memory.
    ///
    /// A restart after a crash takes time in proportion to the log and the changed pages, not to
    /// the number of rows. Until a program that may write has opened the database after a crash,
    /// one that [only reads](crate::Options::read_only) is refused with `not_closed`.
    Paged,
}

foxton_sync::named_enum! {
    TableComponent, "component":
    Resident = "resident",
    Paged = "paged",
}
