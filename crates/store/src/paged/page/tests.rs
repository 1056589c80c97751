//! Pages compared with the plainest map there is, and pages whose bits were flipped.
//!
//! A random history of changes runs on a page and on a `BTreeMap`. After each change the page
//! verifies itself, and at times every answer is compared. Failures print the seed.
#![cfg(test)]

use std::collections::BTreeMap;

use foxton_log::Lsn;

use super::*;
use crate::paged::PageId;

const IDENTITY: FileIdentity = *b"sixteen bytes id";
const PAGE: PageId = PageId(77);

struct Lcg(u64);

impl Lcg {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % bound
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let count = self.below(most + 1);
        (0..count).map(|_| self.below(256) as u8).collect()
    }
}

#[derive(Debug, Clone, PartialEq)]
struct ModelRow {
    value: Vec<u8>,
    reserved: usize,
    is_ghost: bool,
}

type Model = BTreeMap<Vec<u8>, ModelRow>;

fn compare(page: &SlottedPage<&mut [u8]>, model: &Model) {
    assert_eq!(page.slot_count(), model.len());
    let ghosts = model.values().filter(|row| row.is_ghost).count();
    assert_eq!(page.ghost_count(), ghosts);
    for (index, (key, row)) in model.iter().enumerate() {
        assert_eq!(page.key(index)[..], key[..]);
        assert_eq!(page.value(index), row.value);
        let found = page.row(index).expect("a slot");
        assert_eq!(found.flags.has(RowFlags::GHOST), row.is_ghost);
        assert!(
            found.reserved_bytes >= row.reserved,
            "reserved bytes were given away"
        );
        assert_eq!(page.search(key), Ok(index));
    }
}

/// Fences, and a generator of keys between them.
type Domain = (
    &'static [u8],
    Option<&'static [u8]>,
    fn(&mut Lcg) -> Vec<u8>,
);

const DOMAINS: [Domain; 4] = [
    (b"", None, |random| random.bytes(12)),
    (b"", None, |random| {
        // Zeros at the end, which the head fills up with too.
        let mut key = vec![b'a'; random.below(3)];
        key.resize(key.len() + random.below(9), 0);
        key
    }),
    (b"accounts/0000", Some(b"accounts/9"), |random| {
        format!(
            "accounts/{:04}{}",
            random.below(9000),
            "x".repeat(random.below(20))
        )
        .into_bytes()
    }),
    (b"k", Some(b"k\xff"), |random| {
        let mut key = b"k".to_vec();
        key.resize(1 + random.below(127), random.below(3) as u8);
        key
    }),
];

fn history(seed: u64, size: PageSize, (low, high, next_key): Domain) {
    println!("seed {seed}, {size}, from {low:?}");
    let mut random = Lcg(seed);
    let mut bytes = vec![0xee; size.bytes()];
    let mut page = SlottedPage::new(&mut bytes[..]);
    page.format(PageKind::Leaf, 0, 3, PAGE, low, high);
    let mut model = Model::new();
    for step in 0..3000 {
        let key = next_key(&mut random);
        let longest = if random.below(6) == 0 {
            size.bytes() / 8
        } else {
            24
        };
        let value = random.bytes(longest);
        match page.search(&key) {
            Err(index) => {
                let reserved = random.below(40);
                let is_ghost = random.below(8) == 0;
                let flags = if is_ghost {
                    RowFlags::GHOST
                } else {
                    RowFlags::NONE
                };
                match page.insert(index, &key, &value, reserved, flags) {
                    Ok(()) => {
                        let reserved = reserved.max(value.len());
                        model.insert(
                            key,
                            ModelRow {
                                value,
                                reserved,
                                is_ghost,
                            },
                        );
                    }
                    Err(full) => {
                        assert!(full.needed_bytes > full.free_bytes);
                        if !model.is_empty() {
                            let index = random.below(model.len());
                            let key = page.key(index).to_vec();
                            page.remove(index);
                            model.remove(&key).expect("in both");
                        }
                    }
                }
            }
            Ok(index) => {
                let row = model.get_mut(&key).expect("in both");
                match random.below(4) {
                    0 => {
                        row.is_ghost ^= true;
                        let flags = if row.is_ghost {
                            RowFlags::GHOST
                        } else {
                            RowFlags::NONE
                        };
                        page.set_flags(index, flags);
                    }
                    1 => {
                        page.trim(index);
                        row.reserved = row.value.len();
                    }
                    2 => {
                        page.remove(index);
                        model.remove(&key);
                    }
                    _ => match page.replace_value(index, &value) {
                        Ok(()) => {
                            row.reserved = row.reserved.max(value.len());
                            row.value = value;
                        }
                        Err(full) => {
                            assert!(full.needed_bytes > full.free_bytes);
                            assert!(value.len() > row.reserved, "reserved bytes suffice");
                        }
                    },
                }
            }
        }
        assert_eq!(page.verify(), Ok(()), "step {step}");
        if step % 16 == 0 {
            compare(&page, &model);
        }
    }
    compare(&page, &model);
}

#[test]
fn a_page_answers_as_a_map_does() {
    for (seed, domain) in (0..8).zip(DOMAINS.iter().cycle()) {
        history(seed, PageSize::MIN, *domain);
        history(seed + 100, PageSize::default(), *domain);
    }
    history(1000, PageSize::MAX, DOMAINS[0]);
}

/// Returns a leaf with as many rows as fit.
fn full_leaf(bytes: &mut [u8], seed: u64, (low, high, next_key): Domain) -> SlottedPage<&mut [u8]> {
    let mut random = Lcg(seed);
    let mut page = SlottedPage::new(bytes);
    page.format(PageKind::Leaf, 0, 3, PAGE, low, high);
    for _ in 0..400 {
        let (key, value) = (next_key(&mut random), random.bytes(60));
        if let Err(index) = page.search(&key) {
            let flags = if random.below(3) == 0 {
                RowFlags::GHOST
            } else {
                RowFlags::NONE
            };
            // A full page is what we want.
            let _ = page.insert(index, &key, &value, random.below(30), flags);
        }
    }
    page
}

#[test]
fn a_split_keeps_all_rows_and_a_merge_puts_them_back() {
    for seed in 0..60 {
        let domain = DOMAINS[seed as usize % DOMAINS.len()];
        let (mut left, mut right) = (vec![0; 1024], vec![0; 1024]);
        let mut page = full_leaf(&mut left, seed, domain);
        let before = page.all_rows();
        let mut random = Lcg(seed);
        let index = match seed % 3 {
            0 => 1 + random.below(before.len() - 1),
            _ => page
                .split_point(random.below(before.len() + 1))
                .expect("two rows"),
        };
        let mut other = SlottedPage::new(&mut right[..]);
        let separator = page.split_into(&mut other, PageId(78), index);
        assert_eq!(
            (page.verify(), other.verify()),
            (Ok(()), Ok(())),
            "seed {seed}"
        );
        assert_eq!(other.page(), PageId(78));
        assert!(page.has_low_fence(domain.0) && page.has_high_fence(Some(&separator)));
        assert!(other.has_low_fence(&separator) && other.has_high_fence(domain.1));
        let both = [page.all_rows(), other.all_rows()].concat();
        assert_eq!(both, before);
        assert!(separator.len() <= before[index].key.len());
        page.absorb(&other).expect("they were one page");
        assert_eq!(page.verify(), Ok(()));
        assert!(page.has_low_fence(domain.0) && page.has_high_fence(domain.1));
        assert_eq!(page.all_rows(), before);
    }
}

#[test]
fn other_fences_give_the_bytes_that_copies_of_the_rows_give() {
    for seed in 0..60 {
        let domain = DOMAINS[seed as usize % DOMAINS.len()];
        let mut bytes = vec![0; 1024];
        let page = full_leaf(&mut bytes, seed, domain);
        let rows = page.all_rows();
        let count = 1 + Lcg(seed).below(rows.len() - 1);
        let high = page.separator(count);
        let (mut copied, mut moved) = (bytes.clone(), bytes);
        let [mut copied, mut moved] =
            [&mut copied, &mut moved].map(|bytes| SlottedPage::new(&mut bytes[..]));
        // First narrower, with a longer prefix, and then wider.
        for (high, rows) in [(Some(&high[..]), &rows[..count]), (None, &rows[..count])] {
            copied.rebuild(domain.0, high, rows).expect("they fit");
            moved.refence(domain.0, high, rows.len()).expect("they fit");
            assert!(copied.words() == moved.words(), "seed {seed}, {high:?}");
            assert_eq!(moved.verify(), Ok(()));
        }
    }
}

#[test]
fn a_branch_leads_to_the_child_that_holds_a_key() {
    let mut bytes = vec![0; 1024];
    let mut page = SlottedPage::new(&mut bytes[..]);
    page.format(PageKind::Branch, 1, 3, PAGE, b"b", Some(b"x"));
    for (index, key) in [&b"b"[..], b"dog", b"fox", b"foxes"]
        .into_iter()
        .enumerate()
    {
        let child = PageId(100 + index as u64);
        page.insert(index, key, &child.0.to_le_bytes(), 8, RowFlags::NONE)
            .expect("space");
    }
    assert_eq!(page.verify(), Ok(()));
    let children = [
        ("b", 0),
        ("cat", 0),
        ("dog", 1),
        ("fow", 1),
        ("fox", 2),
        ("foxes", 3),
        ("w", 3),
    ];
    for (key, index) in children {
        assert_eq!(page.child_of(key.as_bytes()).0, index, "{key}");
        assert_eq!(page.child(index), Some(PageId(100 + index as u64)));
    }
    assert_eq!(page.child(4), None);
    // Separators of branches are keys as they are.
    assert_eq!(page.separator(3)[..], b"foxes"[..]);
}

#[test]
fn a_rollback_finds_space_for_each_earlier_value() {
    let mut bytes = vec![0; 1024];
    let mut page = full_leaf(&mut bytes, 5, DOMAINS[0]);
    let before = page.all_rows();
    for (index, row) in before.iter().enumerate() {
        page.replace_value(index, &row.value[..row.value.len() / 3])
            .expect("it is shorter");
        page.set_flags(index, row.flags.with(RowFlags::GHOST));
    }
    // Others fill the page meanwhile.
    while page
        .search(b"zzz")
        .is_err_and(|at| page.insert(at, b"zzz", b"", 0, RowFlags::NONE).is_ok())
    {}
    for row in &before {
        let index = page.search(&row.key).expect("a ghost stays");
        page.set_flags(index, row.flags);
        page.replace_value(index, &row.value)
            .expect("its bytes are reserved");
    }
    assert_eq!(page.verify(), Ok(()));
}

/// Calls every function that reads a page.
fn read_all<W: PageWords>(page: &SlottedPage<W>) -> usize {
    let mut sum = page.low_fence().len() + page.high_fence().map_or(0, |key| key.len());
    for index in 0..page.slot_count() {
        sum += page.key(index).len() + page.value(index).len();
        sum += page.search(&page.key(index)).unwrap_or_else(|at| at);
        sum += page.child_of(b"some key").0 + page.child(index).map_or(0, |_| 1);
    }
    sum += page.split_point(page.slot_count() / 2).unwrap_or(0) + page.free_bytes();
    sum + usize::from(page.covers(b"key")) + page.all_rows().len() + page.ghost_count()
}

#[test]
fn every_flipped_bit_is_noticed() {
    let mut image = vec![0; 1024];
    full_leaf(&mut image, 9, DOMAINS[2]).set_lsn(Lsn::new(12345));
    seal(&mut image, &IDENTITY);
    assert_eq!(unseal(&image, PAGE, &IDENTITY), Ok(()));
    for bit in 0..image.len() * 8 {
        image[bit / 8] ^= 1 << (bit % 8);
        let error = unseal(&image, PAGE, &IDENTITY).expect_err("a bit is wrong");
        assert_eq!(error.page, PAGE);
        assert!(
            matches!(error.fault, PageFault::Checksum { .. }),
            "bit {bit}: {error}"
        );
        image[bit / 8] ^= 1 << (bit % 8);
    }
    let cases = [vec![0; 1024], vec![0; 3], Vec::new(), image[..512].to_vec()];
    assert!(
        cases
            .iter()
            .all(|image| unseal(image, PAGE, &IDENTITY).is_err())
    );
    assert!(
        unseal(&image, PAGE, &[0; 16]).is_err(),
        "another database's"
    );
}

#[test]
fn damage_behind_a_right_checksum_is_an_error_or_a_whole_page() {
    let mut random = Lcg(11);
    let (mut whole, mut wrong) = (0, 0);
    for round in 0..30_000_u64 {
        let mut image = vec![0; 1024];
        if round % 500 == 0 {
            println!("round {round}");
        }
        full_leaf_cached(&mut image, round % 8);
        // Mostly in the header and the slots, where it hurts.
        for _ in 0..1 + random.below(4) {
            let reach = if random.below(4) == 0 { 1024 } else { 200 };
            let at = 4 + random.below(reach - 4);
            image[at] = match random.below(3) {
                0 => 0xff,
                1 => random.below(256) as u8,
                _ => image[at] ^ 1 << random.below(8),
            };
        }
        seal(&mut image, &IDENTITY);
        let page = SlottedPage::new(&image[..]);
        read_all(&page);
        match unseal(&image, PAGE, &IDENTITY) {
            Ok(()) => {
                whole += 1;
                // A page that passes can be changed without a panic.
                let kind = page.kind();
                let mut page = SlottedPage::new(&mut image[..]);
                if kind == Some(PageKind::Leaf) {
                    while page.slot_count() > 1 {
                        page.trim(0);
                        let _ = page.replace_value(0, &[1; 90]);
                        assert_eq!(page.verify(), Ok(()));
                        page.remove(page.slot_count() / 2);
                    }
                }
            }
            Err(_) => wrong += 1,
        }
    }
    assert!(whole > 100 && wrong > 100, "{whole} whole, {wrong} wrong");
}

fn full_leaf_cached(image: &mut [u8], seed: u64) {
    use std::sync::OnceLock;
    static LEAVES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let leaves = LEAVES.get_or_init(|| {
        (0..8)
            .map(|seed| {
                let mut bytes = vec![0; 1024];
                full_leaf(&mut bytes, seed, DOMAINS[seed as usize % DOMAINS.len()]);
                bytes
            })
            .collect()
    });
    image.copy_from_slice(&leaves[seed as usize]);
}
