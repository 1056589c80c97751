//! `check` reads every page: damage of pages, trees and maps is found with page and field. It finds
//! none in databases that are closed, crashed or restored, and changes nothing.

use std::sync::Arc;

use foxton::check::{Report, check_on};
use foxton::{Database, Options, Table, backup};
use foxton_log::Lsn;
use foxton_log::device::Device;
use foxton_log::device::disk::Damage;
use foxton_log::device::fault::{Call, FaultDevice, Times};
use foxton_log::device::memory::MemoryDevice;
use foxton_store::paged::PageId;
use foxton_store::paged::page::{PageKind, PageSize, SlottedPage, SpaceMap, seal, unseal};

use crate::common::paged::tiny_pages;
use crate::common::random::Random;

const ONE: Table<u64, [u8]> = Table::new("one").paged();
const OTHER: Table<u64, [u8]> = Table::new("other").paged();
const RESIDENT: Table<u64, [u8]> = Table::new("resident").resident();
const TABLES: [Table<u64, [u8]>; 3] = [ONE, OTHER, RESIDENT];

const PAGE: usize = 1 << 10;

fn options() -> Options {
    tiny_pages(Options::tiny(), 16)
}

fn change(db: &Database, random: &mut Random, changes: u64) {
    let mut tx = db.begin().unwrap();
    for _ in 0..changes {
        let table = &TABLES[random.below(3) as usize];
        let key = random.below(500);
        match random.below(4) {
            0 => tx.delete(table, &key).map(drop),
            _ => tx
                .put(table, &key, &vec![7; random.below(150) as usize])
                .map(drop),
        }
        .unwrap();
    }
    match random.below(5) {
        0 => tx.rollback(),
        _ => tx.commit().unwrap(),
    }
}

/// A closed database with trees of several levels.
fn filled() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new());
    let db = Database::open_on(device.clone(), options()).unwrap();
    // Their trees have the numbers 1 and 2.
    for table in &TABLES {
        db.run(|tx| tx.put(table, &0, &b"first"[..])).unwrap();
    }
    let mut random = Random(1);
    for _ in 0..30 {
        change(&db, &mut random, 60);
    }
    drop(db);
    device
}

fn copy_of(device: &MemoryDevice) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::with_files(device.files()))
}

fn checked(device: &dyn Device) -> Report {
    check_on(device).unwrap()
}

#[track_caller]
fn assert_whole(device: &dyn Device, when: &str) {
    let report = check_on(device).unwrap_or_else(|error| panic!("{when}: {error}"));
    assert_eq!(report.findings, [], "{when}");
    assert!(report.pages > 0, "{when}");
}

/// Returns all rows, or `None` if the database does not open or cannot be read.
fn content(device: &MemoryDevice) -> Option<impl PartialEq + use<>> {
    let db = Database::open_on(copy_of(device), options()).ok()?;
    let rows = |table: &Table<u64, [u8]>| db.run(|tx| tx.range(table, ..).collect()).ok();
    Some([rows(&ONE)?, rows(&OTHER)?, rows(&RESIDENT)?])
}

#[test]
fn a_closed_database_has_no_findings_and_is_not_touched() {
    let device = filled();
    let before = device.files();
    let report = checked(&*device);
    assert_eq!(report.findings, []);
    let db = Database::open_on(copy_of(&device), options()).unwrap();
    for (name, table) in ["one", "other", "resident"].into_iter().zip(&TABLES) {
        let rows = db.run(|tx| tx.range(table, ..).count()).unwrap();
        assert!(rows > 50 && report.tables.contains(&(name.to_owned(), rows)));
    }
    assert!(report.pages > 100, "{report:?}");
    assert_eq!(device.files(), before);
}

#[test]
fn crashed_databases_and_backups_have_no_findings() {
    let damages = Damage::ALL.into_iter();
    let damages: Vec<_> = damages.filter(|damage| !damage.harms_durable()).collect();
    for seed in 0..3 {
        let device = FaultDevice::new();
        device.record();
        let db = Database::open_on(Arc::new(device.clone()), options()).unwrap();
        let mut random = Random(seed);
        for step in 0..12 {
            change(&db, &mut random, 40);
            if step % 5 == 4 {
                db.checkpoint().unwrap();
            }
            let made = Arc::new(MemoryDevice::new());
            let target: Arc<dyn Device> = made.clone();
            db.backup_on(&target, &mut |_, _| {}).unwrap();
            if step > 3 {
                assert_whole(&*made, &format!("backup {step}"));
                let again: Arc<dyn Device> = Arc::new(MemoryDevice::new());
                backup::restore_between(&*made, &again, None, &mut |_, _| {}).unwrap();
                assert_whole(&*again, &format!("restored {step}"));
            }
        }
        for (event, disk) in device.recording().unwrap().disks().enumerate() {
            if event % 6 != seed as usize || event < 60 {
                continue;
            }
            for damage in &damages {
                let image = disk.crash(*damage, event as u64);
                assert_whole(&image, &format!("seed {seed}, event {event}, {damage}"));
            }
        }
    }
}

#[test]
fn a_flipped_byte_of_the_pages_is_named_or_changes_nothing() {
    let device = filled();
    let whole = content(&device);
    assert!(whole.is_some());
    let (mut noticed, mut unnoticed) = (0, 0);
    for (name, contents) in device.files() {
        if !["rows", "rows-double", "pages"].contains(&&name[..]) {
            continue;
        }
        for at in (0..contents.len()).step_by(331) {
            let file = device.open(&name).unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, at).unwrap();
            file.write_at(&[byte[0] ^ (1 << (at % 8))], at).unwrap();
            let report = checked(&*device);
            if report.findings.is_empty() {
                assert!(content(&device) == whole, "byte {at} of {name}, unnoticed");
                unnoticed += 1;
            } else {
                let is_named = report.findings.iter().any(|finding| {
                    let page = at / PAGE as u64 * PAGE as u64;
                    finding.place == name && (name == "pages" || finding.offset == Some(page))
                });
                assert!(is_named, "byte {at} of {name}: {:?}", report.findings);
                noticed += 1;
            }
            file.write_at(&byte, at).unwrap();
        }
    }
    assert!(noticed > 200, "{noticed} noticed, {unnoticed} not");
}

/// The page file of a closed database, to be changed.
struct Pages {
    device: Arc<MemoryDevice>,
    identity: [u8; 16],
}

impl Pages {
    fn new() -> Pages {
        let device = filled();
        let superblock = foxton_log::format::superblock::Superblock::read(&*device).unwrap();
        Pages {
            device,
            identity: superblock.identity,
        }
    }

    fn read(&self, page: u64) -> Vec<u8> {
        let mut image = vec![0; PAGE];
        let file = self.device.open("rows").unwrap();
        file.read_at(&mut image, page * PAGE as u64).unwrap();
        image
    }

    fn write(&self, page: u64, image: &[u8]) {
        let file = self.device.open("rows").unwrap();
        file.write_at(image, page * PAGE as u64).unwrap();
        // Otherwise it would replace a damaged page.
        let _ = self.device.remove("rows-double");
    }

    /// Changes a page and gives it a right checksum.
    fn change(&self, page: u64, change: impl FnOnce(&mut SlottedPage<&mut [u8]>)) {
        let mut image = self.read(page);
        change(&mut SlottedPage::new(&mut image[..]));
        seal(&mut image, &self.identity);
        unseal(&image, PageId(page), &self.identity).expect("by itself it is whole");
        self.write(page, &image);
    }

    fn set_used(&self, page: u64, is_used: bool) {
        let place = PageSize::MIN.map_position(PageId(page));
        let mut image = self.read(place.map.0);
        SpaceMap::new(&mut image[..]).set_used(place.index, is_used);
        seal(&mut image, &self.identity);
        self.write(place.map.0, &image);
    }

    /// Returns the pages of a kind, of a table.
    fn of_kind(&self, kind: PageKind, table: u64) -> Vec<u64> {
        let is_it = |page: &u64| {
            let image = self.read(*page);
            let content = SlottedPage::new(&image[..]);
            unseal(&image, PageId(*page), &self.identity).is_ok()
                && content.kind() == Some(kind)
                && content.table() == table
        };
        (1..checked(&*self.device).pages).filter(is_it).collect()
    }

    /// Asserts that there are findings of these pages, with these words, and no others.
    #[track_caller]
    fn assert_found(&self, expected: &[(u64, &str)]) {
        let findings = checked(&*self.device).findings;
        for (page, words) in expected {
            let is_it = |found: &&foxton::check::Finding| {
                found.place == "rows"
                    && found.offset == Some(page * PAGE as u64)
                    && found.what.contains(words)
            };
            assert!(
                findings.iter().any(|found| is_it(&found)),
                "{page} {words}: {findings:?}"
            );
        }
        let is_expected = |found: &foxton::check::Finding| {
            let pages = expected.iter().map(|(page, _)| Some(page * PAGE as u64));
            found.place == "rows" && pages.into_iter().any(|page| page == found.offset)
        };
        assert!(findings.iter().all(is_expected), "{findings:?}");
    }
}

#[test]
fn swapped_empty_and_old_pages_are_found() {
    let pages = Pages::new();
    let leaves = pages.of_kind(PageKind::Leaf, 1);
    let (one, other) = (leaves[1], leaves[2]);
    let (first, second) = (pages.read(one), pages.read(other));
    pages.write(one, &second);
    pages.write(other, &first);
    let at_its_place = "is at its place";
    pages.assert_found(&[(one, at_its_place), (other, at_its_place)]);

    let pages = Pages::new();
    pages.write(one, &[0; PAGE]);
    pages.assert_found(&[(one, "has only zeros")]);

    // Of another table, with the right number.
    let pages = Pages::new();
    let mut foreign = pages.read(pages.of_kind(PageKind::Leaf, 2)[1]);
    foreign[8..16].copy_from_slice(&one.to_le_bytes());
    pages.write(one, &foreign);
    pages.change(one, |_| {});
    pages.assert_found(&[(one, "its field 'table' is not what page")]);

    let pages = Pages::new();
    pages.change(one, |page| page.set_lsn(Lsn::new(1 << 40)));
    pages.assert_found(&[(one, "its field 'LSN' is")]);

    let pages = Pages::new();
    pages.change(one, |page| {
        let low = page.low_fence().to_vec();
        let high = page.high_fence().map(|high| high.to_vec());
        page.format(
            PageKind::Leaf,
            0,
            1,
            PageId(one),
            &low[..low.len() - 1],
            high.as_deref(),
        );
    });
    let findings = checked(&*pages.device).findings;
    let words = "its field 'low fence' is not what page";
    assert!(
        findings.iter().any(|found| found.what.contains(words)),
        "{findings:?}"
    );
}

#[test]
fn each_page_is_in_exactly_one_place() {
    // A leaked page, which is empty or was used before.
    let pages = Pages::new();
    let free = checked(&*pages.device).pages - 1;
    pages.set_used(free, true);
    pages.assert_found(&[(free, "it is used, and in no tree")]);

    let pages = Pages::new();
    let leaf = pages.of_kind(PageKind::Leaf, 1)[1];
    pages.set_used(leaf, false);
    pages.assert_found(&[(leaf, "free in its space map")]);

    // Two tables have one tree; the tree of one of them is lost.
    let pages = Pages::new();
    let partitions = |table| pages.of_kind(PageKind::Partitions, table)[0];
    let (one, other) = (partitions(1), partitions(2));
    let root = |page| {
        let image = pages.read(page);
        SlottedPage::new(&image[..]).child(0).unwrap().0
    };
    let kept = root(one);
    pages.change(other, |page| {
        page.replace_value(0, &kept.to_le_bytes()).unwrap()
    });
    let findings = checked(&*pages.device).findings;
    assert!(
        findings[0].what.contains("so does another place"),
        "{findings:?}"
    );
    let lost = pages.of_kind(PageKind::Leaf, 2).len() + pages.of_kind(PageKind::Branch, 2).len();
    let leaked = findings
        .iter()
        .filter(|found| found.what.contains("in no tree"));
    assert_eq!(leaked.count(), lost, "{findings:?}");

    // A child that is no page of the file.
    let pages = Pages::new();
    let branch = *pages.of_kind(PageKind::Branch, 1).last().unwrap();
    pages.change(branch, |page| {
        page.replace_value(0, &(1_u64 << 40).to_le_bytes()).unwrap()
    });
    let findings = checked(&*pages.device).findings;
    assert!(
        findings[0].what.contains("its field 'child'"),
        "{findings:?}"
    );
}

#[test]
fn a_missing_file_of_pages_is_found() {
    for name in ["rows", "pages"] {
        let device = filled();
        device.remove(name).unwrap();
        let report = checked(&*device);
        assert_eq!(report.findings.len(), 1, "{report:?}");
        assert_eq!(report.findings[0].place, name);
    }
}

#[test]
fn a_failed_call_of_a_check_of_pages_is_no_finding() {
    let device = FaultDevice::holding(&filled());
    for call in [Call::List, Call::Open, Call::Read] {
        let before = device.calls(call);
        checked(&device);
        let step = if call == Call::Read { 5 } else { 1 };
        for nth in (1..=device.calls(call) - before).step_by(step) {
            device.fail(call, nth, Times::Once, std::io::ErrorKind::Other);
            let error = check_on(&device).expect_err("a call failed");
            assert_eq!(error.code(), "io", "{call:?} {nth}: {error}");
        }
    }
}
