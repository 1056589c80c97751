//! Rows as bytes: numbers of fixed places in front, little-endian, then texts.
//!
//! ```text
//! | number | number | ... | length u8 | text | length u8 | text | ... | text to the end |
//! ```
//!
//! Transactions change numbers in place; only the last text may change its length in place. The
//! last text has no length: it extends to the end.

use std::num::{NonZeroU8, NonZeroU64};

/// A number at the front of a row.
trait Field: Copy {
    const BYTES: usize;
    /// Reads it off the front.
    fn take(row: &mut &[u8]) -> Option<Self>;
    /// Writes it and returns the rest.
    fn place(self, row: &mut [u8]) -> &mut [u8];
}

macro_rules! fields {
    ($($number:ty)*) => {$(
        impl Field for $number {
            const BYTES: usize = size_of::<$number>();
            fn take(row: &mut &[u8]) -> Option<$number> {
                let (bytes, rest) = row.split_first_chunk()?;
                *row = rest;
                Some(<$number>::from_le_bytes(*bytes))
            }
            fn place(self, row: &mut [u8]) -> &mut [u8] {
                let (place, rest) = row.split_at_mut(Self::BYTES);
                place.copy_from_slice(&self.to_le_bytes());
                rest
            }
        }
    )*};
}

fields!(u8 u32 u64 i32 i64);

/// Null is stored as 0, which is no carrier and no time.
macro_rules! nullable_fields {
    ($($number:ty, $stored:ty;)*) => {$(
        impl Field for Option<$number> {
            const BYTES: usize = size_of::<$stored>();
            fn take(row: &mut &[u8]) -> Option<Option<$number>> {
                <$stored>::take(row).map(<$number>::new)
            }
            fn place(self, row: &mut [u8]) -> &mut [u8] {
                self.map_or(0, <$number>::get).place(row)
            }
        }
    )*};
}

nullable_fields!(NonZeroU8, u8; NonZeroU64, u64;);

/// The numbers of one kind of row.
pub trait Head: Copy {
    /// Bytes they take.
    const BYTES: usize;
    /// Reads them; `None` if these bytes are too few.
    fn read(row: &[u8]) -> Option<Self>;
    /// Writes them to the front of a row.
    ///
    /// # Panics
    ///
    /// If the row is too short to be one of this kind.
    fn write(&self, row: &mut [u8]);
}

macro_rules! heads {
    ($($(#[$about:meta])* $head:ident { $($(#[$meaning:meta])* $field:ident: $kind:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $head {
            $($(#[$meaning])* pub $field: $kind,)*
        }

        impl Head for $head {
            const BYTES: usize = 0 $(+ <$kind as Field>::BYTES)*;
            fn read(mut row: &[u8]) -> Option<$head> {
                Some($head { $($field: <$kind as Field>::take(&mut row)?,)* })
            }
            fn write(&self, row: &mut [u8]) {
                $(let row = self.$field.place(row);)*
                let _ = row;
            }
        }
    )*};
}

heads! {
    /// A warehouse. Texts: name, street 1, street 2, city, state, zip.
    Warehouse {
        /// Rate in 1/10,000.
        tax: u32,
        /// Taken in, in cents.
        ytd: i64,
    }
    /// A district. Texts as a warehouse's.
    District {
        /// Rate in 1/10,000.
        tax: u32,
        /// Taken in, in cents.
        ytd: i64,
        /// Number of the next order.
        next_order: u32,
    }
    /// A customer. Texts: first, middle, last, street 1, street 2, city, state, zip, phone, credit,
    /// data.
    Customer {
        /// When the customer became one, in milliseconds since 1970.
        since: u64,
        /// Cents.
        credit_limit: i64,
        /// Rate in 1/10,000.
        discount: u32,
        /// Cents owed.
        balance: i64,
        /// Cents paid.
        ytd_payment: i64,
        /// Payments.
        payments: u32,
        /// Orders delivered.
        deliveries: u32,
    }
    /// A payment. Text: data.
    Payment {
        /// Number of the customer.
        customer: u32,
        /// The customer's district.
        customer_district: u8,
        /// The customer's warehouse.
        customer_warehouse: u32,
        /// Where it was paid.
        district: u8,
        /// Where it was paid.
        warehouse: u32,
        /// Milliseconds since 1970.
        date: u64,
        /// Cents.
        amount: i64,
    }
    /// An order. No texts.
    Order {
        /// Number of the customer, of the order's district.
        customer: u32,
        /// Milliseconds since 1970.
        entered: u64,
        /// The carrier, 1..10; `None` until it is delivered.
        carrier: Option<NonZeroU8>,
        /// Lines, 5..15.
        lines: u8,
        /// 1 if all items come from the order's warehouse, else 0.
        all_local: u8,
    }
    /// A line of an order. Text: the district's print on it.
    OrderLine {
        /// The item.
        item: u32,
        /// The supplying warehouse.
        supply: u32,
        /// When it was delivered, in milliseconds since 1970; `None` as long as it was not.
        delivered: Option<NonZeroU64>,
        /// The quantity.
        quantity: u8,
        /// Cents.
        amount: i64,
    }
    /// An item. Texts: name, data.
    Item {
        /// Number of its picture.
        image: u32,
        /// Cents.
        price: i64,
    }
    /// Stock of an item in a warehouse. Texts: ten that districts print on lines, data.
    Stock {
        /// The quantity in stock, 10..100.
        quantity: i32,
        /// The quantity ordered.
        ytd: i64,
        /// Lines that ordered it.
        orders: u32,
        /// Of these, lines of other warehouses' orders.
        remote: u32,
    }
}

/// Text of a warehouse, a district or an item.
pub const NAME: usize = 0;
/// Text of a customer.
pub const CUSTOMER_FIRST: usize = 0;
/// Text of a customer.
pub const CUSTOMER_LAST: usize = 2;
/// Text of a customer: `GC` is good, `BC` is bad.
pub const CUSTOMER_CREDIT: usize = 9;
/// Text of a customer.
pub const CUSTOMER_DATA: usize = 10;
/// Text of an item.
pub const ITEM_DATA: usize = 1;
/// Text of stock; those before it are the districts'.
pub const STOCK_DATA: usize = 10;

/// Longest data of a customer.
pub const CUSTOMER_DATA_BYTES: usize = 500;

/// The credit of a customer whose payments are recorded in the customer's data.
pub const BAD_CREDIT: &[u8] = b"BC";

/// A row of these numbers and texts.
///
/// # Panics
///
/// If a text before the last is longer than 255 bytes.
pub fn row<H: Head>(head: &H, texts: &[&[u8]]) -> Vec<u8> {
    let bytes: usize = texts.iter().map(|text| text.len() + 1).sum();
    let mut row = Vec::with_capacity(H::BYTES + bytes);
    row.resize(H::BYTES, 0);
    head.write(&mut row);
    for (index, text) in texts.iter().enumerate() {
        if index + 1 < texts.len() {
            row.push(u8::try_from(text.len()).expect("no text but the last is so long"));
        }
        row.extend_from_slice(text);
    }
    row
}

/// The text of this index, if it is not the last; `None` if these bytes are too few.
pub fn text<H: Head>(row: &[u8], index: usize) -> Option<&[u8]> {
    let (length, rest) = skip::<H>(row, index)?.split_first()?;
    rest.get(..usize::from(*length))
}

/// The last text, if it has this index; `None` if these bytes are too few.
pub fn last_text<H: Head>(row: &[u8], index: usize) -> Option<&[u8]> {
    skip::<H>(row, index)
}

/// The bytes after the numbers and this many texts.
fn skip<H: Head>(row: &[u8], texts: usize) -> Option<&[u8]> {
    let mut rest = row.get(H::BYTES..)?;
    for _ in 0..texts {
        let (length, behind) = rest.split_first()?;
        rest = behind.get(usize::from(*length)..)?;
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_come_back_from_their_row_and_numbers_change_in_place() {
        let mut stock = Stock {
            quantity: 17,
            ytd: -4,
            orders: 3,
            remote: 1,
        };
        let districts: Vec<String> = (0..10).map(|d| format!("district {d}")).collect();
        let mut texts: Vec<&[u8]> = districts.iter().map(String::as_bytes).collect();
        texts.push(b"data");
        let mut bytes = row(&stock, &texts);
        assert_eq!(Stock::read(&bytes), Some(stock));
        stock.quantity = 99;
        stock.write(&mut bytes);
        assert_eq!(Stock::read(&bytes), Some(stock));
        assert_eq!(text::<Stock>(&bytes, 9), Some(&b"district 9"[..]));
        assert_eq!(last_text::<Stock>(&bytes, STOCK_DATA), Some(&b"data"[..]));
    }

    #[test]
    fn null_is_not_a_number_and_short_rows_are_no_rows() {
        let order = Order {
            customer: 1,
            entered: 2,
            carrier: None,
            lines: 5,
            all_local: 1,
        };
        let bytes = row(&order, &[]);
        assert_eq!(Order::read(&bytes), Some(order));
        assert_eq!(Order::read(&bytes[1..]), None);
        assert_eq!(text::<Stock>(&[0; 20], 0), None);
        assert_eq!(last_text::<Stock>(&[0; 3], 0), None);
    }
}
