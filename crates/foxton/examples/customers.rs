//! Customers, found by mail address, by city and by debt.
//!
//! There are three secondary indexes: a unique one without customers that have no mail address, one
//! in which many customers share a key, and one with keys of two parts. The database updates them
//! inside the transactions that write to the table. The program only declares how to extract their
//! keys from a row.
//!
//! `cargo run --release -p foxton --example customers`

use foxton::codec::{TypeName, Undecodable};
use foxton::{Database, Durability, Index, Options, Result, Table, Value};

#[derive(Debug, Clone, PartialEq)]
struct Customer {
    name: String,
    mail: Option<String>,
    city: String,
    owes: u64,
}

/// Stored as a tuple.
impl Value for Customer {
    type Owned = Customer;
    const TYPE: TypeName = TypeName::new("shop::Customer.1");

    fn encode(&self, out: &mut Vec<u8>) {
        (&*self.name, self.mail.as_deref(), &*self.city, self.owes).encode(out);
    }

    fn encode_part(&self, out: &mut Vec<u8>) {
        (&*self.name, self.mail.as_deref(), &*self.city, self.owes).encode_part(out);
    }

    fn decode(bytes: &[u8]) -> Result<Customer, Undecodable> {
        <(String, Option<String>, String, u64)>::decode(bytes).map(Customer::from)
    }

    fn decode_part(bytes: &mut &[u8]) -> Result<Customer, Undecodable> {
        <(String, Option<String>, String, u64)>::decode_part(bytes).map(Customer::from)
    }
}

impl From<(String, Option<String>, String, u64)> for Customer {
    fn from((name, mail, city, owes): (String, Option<String>, String, u64)) -> Customer {
        Customer {
            name,
            mail,
            city,
            owes,
        }
    }
}

const CUSTOMERS: Table<u64, Customer> = Table::new("customers");

/// Each address belongs to one customer; customers without an address are not in the index.
const BY_MAIL: Index<str, u64, Customer> =
    Index::unique("customers_by_mail", &CUSTOMERS, |_, customer, keys| {
        if let Some(mail) = &customer.mail {
            keys.add(&mail.to_lowercase());
        }
    });

const BY_CITY: Index<str, u64, Customer> =
    Index::new("customers_by_city", &CUSTOMERS, |_, customer, keys| {
        keys.add(&customer.city);
    });

/// By city, and within a city by debt.
const BY_DEBT: Index<(&str, u64), u64, Customer> =
    Index::new("customers_by_debt", &CUSTOMERS, |_, customer, keys| {
        if customer.owes > 0 {
            keys.add(&(&*customer.city, customer.owes));
        }
    });

fn customer(name: &str, mail: Option<&str>, city: &str, owes: u64) -> Customer {
    Customer::from((name.into(), mail.map(str::to_owned), city.into(), owes))
}

fn main() -> Result<()> {
    let mut options = Options::default();
    options.durability = Durability::Buffered;
    options.indexes.add(&BY_MAIL).add(&BY_CITY);
    let db = Database::in_memory(options)?;
    db.run(|tx| {
        tx.put(
            &CUSTOMERS,
            &1,
            &customer("Ada", Some("Ada@example.org"), "London", 0),
        )?;
        tx.put(
            &CUSTOMERS,
            &2,
            &customer("Grace", Some("grace@example.org"), "New York", 120),
        )?;
        tx.put(&CUSTOMERS, &3, &customer("Alan", None, "London", 40))?;
        tx.put(&CUSTOMERS, &4, &customer("Edsger", None, "London", 300))
    })?;

    // Read one row by a unique key, to change it. The row is locked, and later found by its new
    // city.
    db.run(|tx| {
        let found = tx.get_by_for_update(&BY_MAIL, "grace@example.org")?;
        let (id, mut grace) = found.expect("she is a customer");
        grace.city = "London".to_owned();
        tx.put(&CUSTOMERS, &id, &grace)
    })?;
    let mut tx = db.begin()?;
    print!("in London:");
    for row in tx.all_by(&BY_CITY, "London") {
        let (_city, id, customer) = row?;
        print!(" {} ({id})", customer.name);
    }
    println!();

    // A second customer with an existing address is refused; the transaction goes on.
    let refused = tx.insert(
        &CUSTOMERS,
        &5,
        &customer("Eve", Some("ADA@example.org"), "Paris", 0),
    );
    let error = refused.expect_err("Ada has this address");
    println!("refused: {error}");
    let taken = error.key_taken().expect("that is why");
    println!("  the row in the way is {}", taken.row_as::<u64>()?);
    tx.insert(&CUSTOMERS, &5, &customer("Eve", None, "Paris", 7))?;
    tx.commit()?;

    // Another index, on a table that already has rows.
    db.create_index(&BY_DEBT)?;
    let mut tx = db.begin()?;
    println!("who owes most in London:");
    let london = ("London", 0)..=("London", u64::MAX);
    for row in tx.range_by(&BY_DEBT, london).reversed().limit(2) {
        let ((_city, owes), _id, customer) = row?;
        println!("  {} owes {owes}", customer.name);
    }
    drop(tx);

    for index in db.indexes() {
        let kind = if index.is_unique { "unique" } else { "shared" };
        println!("{}: {kind}, about {} entries", index.name, index.entries);
    }
    let findings = db.check_indexes()?;
    assert!(findings.is_empty(), "{findings:?}");
    Ok(())
}
