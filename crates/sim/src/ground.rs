//! Ground of a victim: where its database lies, and what happens there when the victim dies.

use crate::victim::Orders;
use foxton::Durability;
use std::io;

/// See the [module](self).
pub trait Ground {
    /// Prepares the place for the database of `orders`, whose folder exists and is empty.
    ///
    /// # Errors
    /// If that cannot be done.
    fn prepare(&mut self, orders: &Orders) -> io::Result<()>;
    /// Called when the victim is dead: does whatever else happens before the database is inspected.
    ///
    /// # Errors
    /// If that cannot be done.
    fn cut(&mut self) -> io::Result<()>;
    /// Releases the place.
    ///
    /// # Errors
    /// If that cannot be done.
    fn clear(&mut self) -> io::Result<()>;
    /// True if an acknowledged commit of this durability must be found afterwards.
    fn keeps(&self, durability: Durability) -> bool;
}

/// The machine keeps running: bytes handed to the operating system stay.
#[derive(Debug, Clone, Copy, Default)]
pub struct Firm;

impl Ground for Firm {
    fn prepare(&mut self, _orders: &Orders) -> io::Result<()> {
        Ok(())
    }
    fn cut(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn clear(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn keeps(&self, durability: Durability) -> bool {
        durability != Durability::None
    }
}
