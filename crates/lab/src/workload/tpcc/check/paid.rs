//! Payments: the history against warehouses and districts (conditions 1, 8, 9, 14).

use foxton::Transaction;

use super::{Faults, each, named};
use crate::workload::tpcc::{
    DISTRICTS, DistrictKey, HISTORY, NumberKey, PAID_BEFORE, Scale, WAREHOUSES,
    acknowledged::Sums,
    load::NOBODY,
    row::{District, Payment, Warehouse},
};

/// Payments of a customer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OfCustomer {
    pub(super) sum: i64,
    pub(super) count: u32,
}

/// Sums of the history.
#[derive(Debug)]
pub(super) struct Paid {
    scale: Scale,
    /// By district, the sum of the payments.
    districts: Vec<i64>,
    customers: Vec<OfCustomer>,
}

impl Paid {
    /// Reads the history and compares it with the acknowledged payments.
    pub(super) fn read(
        tx: &mut Transaction,
        scale: Scale,
        sums: Option<&Sums>,
        faults: &mut Faults,
    ) -> Result<Paid, String> {
        let districts = scale.warehouses as usize * usize::from(scale.districts);
        let mut paid = Paid {
            scale,
            districts: vec![0; districts],
            customers: vec![OfCustomer::default(); districts * scale.customers as usize],
        };
        let (mut loaded, mut booked) = ((0, 0), (0, 0));
        each(tx, &HISTORY, .., |key, payment: Payment, _| {
            let sum = match key.0 == NOBODY {
                true => &mut loaded,
                false => &mut booked,
            };
            *sum = (sum.0 + 1, sum.1 + payment.amount);
            let known = paid.add(&payment).is_some();
            faults.expect(14, known, || {
                let row = named(&HISTORY, key);
                format!("{row} is of a customer or district that does not exist: {payment:?}")
            });
        })?;
        let customers = paid.customers.len() as u64;
        let before = (customers, customers as i64 * PAID_BEFORE);
        faults.expect(14, loaded == before, || {
            let name = HISTORY.name();
            format!("{name} has (rows, cents) {loaded:?} from before the beginning, not {before:?}")
        });
        if let Some(sums) = sums {
            let acknowledged = (sums.payments, sums.paid);
            faults.expect(14, booked == acknowledged, || {
                let name = HISTORY.name();
                format!("{name} has (rows, cents) {booked:?}, acknowledged were {acknowledged:?}")
            });
        }
        Ok(paid)
    }

    fn add(&mut self, payment: &Payment) -> Option<()> {
        let of = (
            payment.customer_warehouse,
            payment.customer_district,
            payment.customer,
        );
        let customer = self.customer_index(of)?;
        let at = self.district_index((payment.warehouse, payment.district))?;
        self.customers[customer].sum += payment.amount;
        self.customers[customer].count += 1;
        self.districts[at] += payment.amount;
        Some(())
    }

    fn district_index(&self, (w, d): DistrictKey) -> Option<usize> {
        let Scale {
            warehouses,
            districts,
            ..
        } = self.scale;
        let known = (1..=warehouses).contains(&w) && (1..=districts).contains(&d);
        let before = (w as usize)
            .wrapping_sub(1)
            .wrapping_mul(usize::from(districts));
        known.then(|| before + usize::from(d) - 1)
    }

    fn customer_index(&self, (w, d, c): NumberKey) -> Option<usize> {
        let customers = self.scale.customers;
        let district = self.district_index((w, d))?;
        let known = (1..=customers).contains(&c);
        known.then(|| district * customers as usize + c as usize - 1)
    }

    /// Payments of a customer.
    pub(super) fn of(&self, customer: NumberKey) -> OfCustomer {
        let index = self.customer_index(customer);
        index.map_or_else(OfCustomer::default, |index| self.customers[index])
    }

    /// Conditions 1, 8 and 9.
    pub(super) fn check(
        &self,
        tx: &mut Transaction,
        scale: Scale,
        faults: &mut Faults,
    ) -> Result<(), String> {
        let mut sums = vec![0; scale.warehouses as usize];
        each(tx, &DISTRICTS, .., |key, district: District, _| {
            if let Some(sum) = sums.get_mut((key.0 as usize).wrapping_sub(1)) {
                *sum += district.ytd;
            }
            let paid = self.district_index(key).map(|index| self.districts[index]);
            faults.expect(9, paid == Some(district.ytd), || {
                let row = named(&DISTRICTS, key);
                format!("{row} has ytd {}, the history {paid:?}", district.ytd)
            });
        })?;
        let mut found = vec![false; scale.warehouses as usize];
        each(tx, &WAREHOUSES, .., |key, warehouse: Warehouse, _| {
            if let Some(found) = found.get_mut((key as usize).wrapping_sub(1)) {
                *found = true;
            }
            let ytd = warehouse.ytd;
            let sum = sums.get((key as usize).wrapping_sub(1)).copied();
            faults.expect(1, sum == Some(ytd), || {
                let row = named(&WAREHOUSES, key);
                format!("{row} has ytd {ytd}, its districts {sum:?}")
            });
            let own = (1..=scale.districts).filter_map(|d| self.district_index((key, d)));
            let paid: i64 = own.map(|index| self.districts[index]).sum();
            faults.expect(8, paid == ytd, || {
                let row = named(&WAREHOUSES, key);
                format!("{row} has ytd {ytd}, the history {paid}")
            });
        })?;
        for (number, found) in (1u32..).zip(found) {
            faults.expect(1, found, || {
                format!("{} is gone", named(&WAREHOUSES, number))
            });
        }
        Ok(())
    }
}
