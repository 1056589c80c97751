//! Files of pages, built from the document and read by the engine.

use std::sync::Arc;

use foxton_log::device::Device;
use foxton_log::device::memory::MemoryDevice;
use foxton_log::{Log, LogOptions, Lsn};
use foxton_store::paged::PageId;
use foxton_store::paged::btree::{ScanDirection, ScanRange, TableDirectory, TreeError};
use foxton_store::paged::check::{PageFinding, PagesReport, check_pages};
use foxton_store::paged::page::{LeafRows, RowFlags};
use foxton_store::paged::page_log::RecoveryLog;
use foxton_store::paged::pool::{BufferPool, MIN_FRAMES};
use foxton_store::paged::recovery::anchor::Anchor;
use foxton_store::paged::recovery::{Analysis, Recovery, RestartOptions};
use foxton_store::paged::space::{DoublewriteBuffer, PageFile, PageSource};
use foxton_store::paged::values::{LargeValue, MarkedRow, VALUES, mark_key, part_key};
use foxton_sync::checksum::crc32c;
use foxton_sync::worker::Workers;

use super::{Fields, IDENTITY, SIZE, TABLE, table};

/// A row of a page: key, value, flags.
type Row<'a> = (&'a [u8], Vec<u8>, u64);

/// Returns a page with rows, built from section 2. Each has two bytes more than it needs, and the
/// first entry of the heap has three bytes of garbage behind it.
fn page(
    number: u64,
    kind: &str,
    level: u64,
    tree: u64,
    fences: (&[u8], Option<&[u8]>),
    rows: &[Row<'_>],
) -> Vec<u8> {
    let (header, slot) = (Fields::of(2, "offset"), Fields::of(2, "offset in a slot"));
    let slot_bytes = slot.0.values().map(|(_, bytes)| bytes).sum::<usize>();
    // The structure has one field of zeros that the map counts.
    let kinds = table(2, "kind");
    let kind_row = kinds.iter().find(|row| row[1] == kind).expect("the kind");
    let (low, high) = (fences.0, fences.1.unwrap_or(b""));
    let shared = low.iter().zip(high).take_while(|(a, b)| a == b).count();
    let mut image = vec![0; SIZE];
    let at = header.offset("fences");
    image[at..at + low.len()].copy_from_slice(low);
    image[at + low.len()..][..high.len()].copy_from_slice(high);
    let slots = (at + low.len() + high.len()).next_multiple_of(8);
    let mut heap = SIZE;
    let mut garbage = 0;
    let mut ghosts = 0;
    for (index, (key, value, flags)) in rows.iter().enumerate() {
        let stored = &key[shared..];
        let spare = if kind == "leaf" { 2 } else { 0 };
        if kind == "leaf" && index == 0 {
            (heap, garbage) = (heap - 3, 3);
        }
        heap -= stored.len() + value.len() + spare;
        image[heap..heap + stored.len()].copy_from_slice(stored);
        image[heap + stored.len()..][..value.len()].copy_from_slice(value);
        let head: [u8; 4] = std::array::from_fn(|at| stored.get(at).copied().unwrap_or(0));
        let values = [
            ("entry", heap as u64),
            ("key bytes", stored.len() as u64),
            ("head", u32::from_be_bytes(head).into()),
            ("value bytes", value.len() as u64),
            ("reserved", (value.len() + spare) as u64),
            ("flags", *flags),
        ];
        slot.put(&mut image, slots + index * slot_bytes, &values);
        ghosts += flags & 1;
    }
    let values = [
        ("kind", kind_row[0].parse().expect("a number")),
        ("level", level),
        ("version", 1),
        ("page", number),
        ("table", tree),
        ("slots", rows.len() as u64),
        ("heap", (SIZE - heap) as u64),
        ("garbage", garbage),
        ("ghosts", ghosts),
        ("low", low.len() as u64),
        ("high", high.len() as u64),
        ("prefix", shared as u64),
        ("unbounded", fences.1.is_none().into()),
    ];
    header.put(&mut image, 0, &values);
    sealed(image)
}

/// Returns the page with its checksum.
fn sealed(mut image: Vec<u8>) -> Vec<u8> {
    let header = Fields::of(2, "offset");
    let behind = header.offset("checksum") + 4;
    let sum = crc32c(crc32c(0, &IDENTITY), &image[behind..]);
    header.put(&mut image, 0, &[("checksum", sum.into())]);
    image
}

/// Returns the first space map, in which the pages below `used` are used.
fn space_map(used: u64) -> Vec<u8> {
    let maps = Fields::of(3, "offset");
    assert_eq!(maps.0["used"], (64, SIZE / 2));
    assert_eq!(maps.0["owners"], (64 + SIZE / 2, SIZE / 4));
    let mut image = page(2, "space map", 0, 0, (b"", None), &[]);
    let word = (1_u64 << used) - 1;
    image[maps.offset("used")..][..8].copy_from_slice(&word.to_le_bytes());
    sealed(image)
}

/// Returns page 0 with both copies of the header; the second is the newer one.
fn file_header(end: u64) -> Vec<u8> {
    let header = Fields::of(1, "offset in a copy");
    let mut image = vec![0; SIZE];
    for (base, sequence, end) in [(0, 2, 1), (SIZE / 2, 3, end)] {
        header.put_bytes(&mut image, base, "magic", b"FOXROWS\0");
        header.put_bytes(&mut image, base, "identity", &IDENTITY);
        let values = [
            ("version", 1),
            ("page size", SIZE as u64),
            ("sequence", sequence),
            ("end", end),
        ];
        header.put(&mut image, base, &values);
        header.put_checksum(&mut image, base);
    }
    image
}

fn descriptor(number: u64, value: &[u8]) -> Vec<u8> {
    let fields = Fields::of(6, "offset");
    let mut bytes = vec![0; 16];
    let values = [
        ("number", number),
        ("length", value.len() as u64),
        ("checksum", crc32c(0, value).into()),
    ];
    fields.put(&mut bytes, 0, &values);
    bytes
}

/// A large value in two parts.
fn large_value() -> (Vec<u8>, usize) {
    let most = SIZE - 128;
    ((0..most + 100).map(|at| (at * 7) as u8).collect(), most)
}

/// Writes a file with a table of three leaves and a large value.
fn write_file(device: &MemoryDevice) -> Vec<Vec<u8>> {
    let (large, most) = large_value();
    let (be, le) = (u64::to_be_bytes, u64::to_le_bytes);
    let part = |number: u32| [&be(1)[..], &number.to_be_bytes()].concat();
    let mark = [be(0), be(1)].concat();
    let marked = [&le(TABLE)[..], b"fox/whale"].concat();
    let none: (&[u8], Option<&[u8]>) = (b"", None);
    let child = |page: u64| le(page).to_vec();
    let branch: [Row<'_>; 3] = [
        (&b""[..], child(5), 0),
        (b"fox/d", child(6), 0),
        (b"fox/s", child(7), 0),
    ];
    let pages = vec![
        file_header(32),
        page(
            1,
            "leaf",
            0,
            0,
            none,
            &[(&be(TABLE), child(3), 0), (&be(u64::MAX), child(8), 0)],
        ),
        space_map(12),
        page(3, "partitions", 0, TABLE, none, &[(b"", child(4), 0)]),
        page(4, "branch", 1, TABLE, none, &branch),
        page(
            5,
            "leaf",
            0,
            TABLE,
            (b"", Some(b"fox/d")),
            &[(b"ant", b"small".to_vec(), 0)],
        ),
        page(
            6,
            "leaf",
            0,
            TABLE,
            (b"fox/d", Some(b"fox/s")),
            &[
                (b"fox/deer", b"brown".to_vec(), 0),
                (b"fox/dodo", b"gone".to_vec(), 1),
            ],
        ),
        page(
            7,
            "leaf",
            0,
            TABLE,
            (b"fox/s", None),
            &[(b"fox/whale", descriptor(1, &large), 2)],
        ),
        page(8, "partitions", 0, u64::MAX, none, &[(b"", child(9), 0)]),
        page(
            9,
            "branch",
            1,
            u64::MAX,
            none,
            &[(b"", child(10), 0), (&part(1), child(11), 0)],
        ),
        page(
            10,
            "leaf",
            0,
            u64::MAX,
            (b"", Some(&part(1))),
            &[
                (&mark, marked, 0),
                (&part(0), large[..most - 100].to_vec(), 0),
            ],
        ),
        page(
            11,
            "leaf",
            0,
            u64::MAX,
            (&part(1), None),
            &[(&part(1), large[most - 100..].to_vec(), 0)],
        ),
        page(12, "free page", 0, TABLE, none, &[]),
    ];
    let file = device.create("rows").expect("memory");
    file.write_at(&pages.concat(), 0).expect("memory");
    file.allocate(32 * SIZE as u64).expect("memory");
    pages
}

/// Returns what a check of the file finds, behind a log without records.
fn check(device: &MemoryDevice) -> (PagesReport, Vec<PageFinding>) {
    let analysis = Analysis::begin::<TreeError>(device, &IDENTITY, None).expect("no anchor");
    let source = PageSource {
        directory: device,
        file: "rows",
        doublewrite: "rows-double",
        identity: IDENTITY,
    };
    let mut findings = Vec::new();
    let found = &mut |finding| findings.push(finding);
    let report = check_pages(&source, &analysis, &mut |_| (), found).expect("memory");
    (report, findings)
}

#[test]
fn a_file_that_the_document_describes_is_whole_and_has_its_rows() {
    let device = MemoryDevice::new();
    write_file(&device);
    let (report, findings) = check(&device);
    assert_eq!(findings, []);
    assert_eq!(report.pages, 32);
    assert_eq!(report.trees, [(TABLE, 3), (VALUES, 3)]);
    // The same through trees, buffer pool and space maps.
    let worker = Workers::new().worker();
    // The log has a directory of its own.
    let directory: Arc<MemoryDevice> = Arc::new(MemoryDevice::new());
    let mut analysis = Analysis::begin::<TreeError>(&device, &IDENTITY, None).expect("no anchor");
    let opened = Log::open(
        directory.clone(),
        LogOptions::tiny(),
        IDENTITY,
        &mut |record| analysis.take(record),
    );
    let (log, _) = opened.expect("a new log");
    let options = RestartOptions::default();
    let log = Arc::new(log);
    let recovery = Recovery::new(directory, IDENTITY, log, &worker, &analysis, &options);
    let page_log = Arc::new(RecoveryLog::new(Arc::new(recovery)));
    let file = PageFile::open(&device, "rows", IDENTITY).expect("whole");
    let pool = Arc::new(BufferPool::new(file, MIN_FRAMES, page_log).expect("whole"));
    assert_eq!(pool.space().free_count(), 32 - 12);
    let trees = TableDirectory::new(pool);
    let rows_of = |table| {
        let tree = trees.open(&worker, table).expect("whole").expect("a tree");
        let (mut found, mut rows) = (Vec::new(), LeafRows::default());
        loop {
            let last = found.last().map(|(key, ..): &(Vec<u8>, _, _)| key.clone());
            let range = ScanRange {
                direction: ScanDirection::Forward,
                from: last.as_deref(),
                is_excluded: last.is_some(),
                end: None,
                most: usize::MAX,
            };
            let mut visit = tree.visit(&worker);
            visit
                .run(|visit| visit.scan(range, &mut rows))
                .expect("whole");
            if rows.is_empty() {
                return found;
            }
            let copy = |at| {
                (
                    rows.key(at).to_vec(),
                    rows.value(at).to_vec(),
                    rows.flags(at),
                )
            };
            found.extend((0..rows.len()).map(copy));
        }
    };
    let (large, most) = large_value();
    let row = |key: &[u8], value: &[u8], flags| (key.to_vec(), value.to_vec(), flags);
    let whale = LargeValue::new(1, &large);
    let expected = [
        row(b"ant", b"small", RowFlags::NONE),
        row(b"fox/deer", b"brown", RowFlags::NONE),
        row(b"fox/dodo", b"gone", RowFlags::GHOST),
        row(b"fox/whale", &whale.encode(), RowFlags::OVERFLOW),
    ];
    assert_eq!(rows_of(TABLE), expected);
    let marked = MarkedRow {
        table: TABLE,
        key: b"fox/whale",
    };
    let expected = [
        row(&mark_key(1), &marked.encode(), RowFlags::NONE),
        row(&part_key(1, 0), &large[..most - 100], RowFlags::NONE),
        row(&part_key(1, 1), &large[most - 100..], RowFlags::NONE),
    ];
    assert_eq!(rows_of(VALUES), expected);
}

#[test]
fn any_changed_byte_of_such_a_page_is_found() {
    let device = MemoryDevice::new();
    let pages = write_file(&device);
    let file = device.open("rows").expect("it is there");
    for (number, image) in pages.iter().enumerate().skip(1) {
        for byte in (0..SIZE).step_by(97) {
            let at = (number * SIZE + byte) as u64;
            file.write_at(&[image[byte] ^ 0x10], at).expect("memory");
            assert_ne!(check(&device).1, [], "byte {byte} of page {number}");
            file.write_at(&image[byte..=byte], at).expect("memory");
        }
    }
    assert_eq!(check(&device).1, []);
}

#[test]
fn a_slot_that_the_document_describes_repairs_a_torn_page() {
    let device = MemoryDevice::new();
    let pages = write_file(&device);
    let slot = Fields::of(5, "offset in a slot");
    let images = slot.offset("images");
    let mut bytes = vec![0; images + 2 * SIZE];
    slot.put_bytes(&mut bytes, 0, "magic", b"FOXDOUBL");
    slot.put_bytes(&mut bytes, 0, "identity", &IDENTITY);
    let values = [
        ("version", 1),
        ("page size", SIZE as u64),
        ("sequence", 5),
        ("count", 2),
    ];
    slot.put(&mut bytes, 0, &values);
    for (index, page) in [4_usize, 6].into_iter().enumerate() {
        let number = (page as u64).to_le_bytes();
        bytes[slot.offset("pages") + 8 * index..][..8].copy_from_slice(&number);
        bytes[images + index * SIZE..][..SIZE].copy_from_slice(&pages[page]);
    }
    slot.put_checksum(&mut bytes, 0);
    // The slot behind the first.
    let begin = (images + 128 * SIZE) as u64;
    let double = device.create("rows-double").expect("memory");
    double.write_at(&bytes, begin).expect("memory");
    let file = device.open("rows").expect("it is there");
    file.write_at(&[9; 600], (6 * SIZE + 200) as u64)
        .expect("memory");
    assert_ne!(check(&device).1, [], "it is torn");
    let file = PageFile::open(&device, "rows", IDENTITY).expect("whole");
    let is_redone = |page, _| page == PageId(6);
    let end = Lsn::new(1 << 40);
    let opened = DoublewriteBuffer::open(&device, "rows-double", &file, end, &is_redone);
    assert_eq!(opened.expect("memory").1.torn, 1);
    assert_eq!(check(&device).1, []);
}

#[test]
fn the_anchor_has_the_bytes_of_the_document() {
    let fields = Fields::of(8, "offset");
    let mut bytes = vec![0; 512];
    fields.put_bytes(&mut bytes, 0, "magic", b"FOXTONpg");
    fields.put_bytes(&mut bytes, 0, "identity", &IDENTITY);
    let values = [
        ("version", 1),
        ("begin", 800),
        ("end at", 824),
        ("durable", 880),
        ("needed from", 640),
    ];
    fields.put(&mut bytes, 0, &values);
    fields.put_checksum(&mut bytes, 0);
    let device = MemoryDevice::new();
    let file = device.create("pages").expect("memory");
    file.write_at(&bytes, 0).expect("memory");
    let anchor = Anchor {
        begin: Lsn::new(800),
        end_at: Lsn::new(824),
        durable: Lsn::new(880),
        needed_from: Lsn::new(640),
    };
    let read = Anchor::read(&device, &IDENTITY).expect("whole");
    assert_eq!(read, Some(anchor));
}
