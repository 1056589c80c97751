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
    /// For now closing the database makes their changes durable, and nothing else does. A database
    /// with paged tables whose process ended without closing it is refused with `not_closed`.
    Paged,
}

foxton_sync::named_enum! {
    TableComponent, "component":
    Resident = "resident",
    Paged = "paged",
}
