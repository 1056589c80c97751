//! What a victim's database lies on, and what happens to that when the victim dies.

use crate::victim::Orders;
use foxton::Durability;
use std::io;

/// See the [module](self).
pub trait Ground {
    /// Makes the place for the database of `orders`, whose folder is there and empty.
    ///
    /// # Errors
    /// If that cannot be done.
    fn prepare(&mut self, orders: &Orders) -> io::Result<()>;
    /// The victim is dead; does what else is to happen before anybody looks.
    ///
    /// # Errors
    /// If that cannot be done.
    fn cut(&mut self) -> io::Result<()>;
    /// Gives the place back.
    ///
    /// # Errors
    /// If that cannot be done.
    fn clear(&mut self) -> io::Result<()>;
    /// Whether an acknowledged commit of this durability has to be there afterwards.
    fn keeps(&self, durability: Durability) -> bool;
}

/// The machine goes on: what was handed to the operating system stays.
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
