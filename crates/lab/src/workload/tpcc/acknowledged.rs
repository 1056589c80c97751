//! Acknowledgements to clients: sums for the checks, and each event for a witness that records what
//! must survive a crash.

use std::sync::{Arc, Mutex, PoisonError};

use super::NumberKey;

/// A change that was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An order was entered.
    NewOrder {
        /// Its key.
        order: NumberKey,
        /// The customer of the order.
        customer: u32,
        /// Number of its lines.
        lines: u8,
    },
    /// A payment was booked.
    Payment {
        /// Its key in the history.
        number: (u32, u64),
        /// The paying customer.
        customer: NumberKey,
        /// Cents.
        amount: i64,
    },
    /// An order was delivered.
    Delivery {
        /// Its key.
        order: NumberKey,
    },
}

/// Receives each event, from its client, before the client's next transaction begins.
pub type Witness = Arc<dyn Fn(&Event) + Send + Sync>;

/// Counts of acknowledged events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// Orders entered.
    pub new_orders: u64,
    /// Payments booked.
    pub payments: u64,
    /// Their sums, in cents.
    pub paid: i64,
    /// Orders delivered.
    pub deliveries: u64,
}

impl Sums {
    /// Adds an event.
    pub fn count(&mut self, event: &Event) {
        match event {
            Event::NewOrder { .. } => self.new_orders += 1,
            Event::Payment { amount, .. } => {
                self.payments += 1;
                self.paid += amount;
            }
            Event::Delivery { .. } => self.deliveries += 1,
        }
    }
}

/// Acknowledgements to all clients of a database; each adds its own when it is dropped.
#[derive(Debug, Clone, Default)]
pub struct Acknowledged(Arc<Mutex<Sums>>);

impl Acknowledged {
    /// The sums of all clients dropped so far.
    pub fn sums(&self) -> Sums {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds those of one.
    pub(super) fn add(&self, more: Sums) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.new_orders += more.new_orders;
        all.payments += more.payments;
        all.paid += more.paid;
        all.deliveries += more.deliveries;
    }
}
