//! Checks of trees in use: whole ones beside threads that change them, and damaged ones.
#![cfg(test)]

use std::sync::atomic::{AtomicU64, Ordering};

use foxton_log::device::Device;
use foxton_sync::worker::Worker;

use super::TableDirectory;
use super::tests::{Bench, IDENTITY, TABLE, insert, number_key, storm};
use crate::paged::PageId;
use crate::paged::check::{PageFinding, PagesReport, check_open_pages};
use crate::paged::page::{PageKind, SlottedPage, SpaceMap, seal};
use crate::paged::stall::fail_if_stalled;

const BYTES: usize = 1024;

fn check(directory: &TableDirectory, worker: &Worker) -> (PagesReport, Vec<PageFinding>) {
    let mut findings = Vec::new();
    let report = check_open_pages(directory, worker, &mut |_| {}, &mut |finding| {
        findings.push(finding);
    });
    (report.expect("a device that works"), findings)
}

fn clean_all(bench: &Bench, worker: &Worker) {
    while bench.pool.dirty_count() > 0 {
        bench.pool.clean_all(worker).expect("memory");
    }
    bench.pool.evict_all(worker);
}

#[test]
fn a_whole_file_has_no_finding_and_each_page_is_counted_once() {
    let bench = Bench::new(16);
    let (worker, directory) = (bench.workers.worker(), bench.directory());
    let mut trees = Vec::new();
    for (table, rows) in [(TABLE, 2_000), (TABLE + 1, 0)] {
        let tree = directory.create(&worker, table).expect("space");
        let mut visit = tree.visit(&worker);
        (0..rows).for_each(|number| insert(&mut visit, &number_key(number), &[1; 60]));
        drop(visit);
        trees.push(tree);
    }
    let pages: usize = trees
        .iter()
        .chain([&**directory.tree()])
        .map(|tree| tree.verify(&worker).expect("whole").pages.len())
        .sum();
    let (report, findings) = check(&directory, &worker);
    assert_eq!(findings, []);
    assert_eq!(report.trees, [(TABLE, 2_000), (TABLE + 1, 0)]);
    // With their partition pages.
    assert_eq!(report.in_trees, pages as u64 + 2);
}

#[test]
fn nothing_is_found_beside_threads_that_change_the_tree() {
    static CHECKS: AtomicU64 = AtomicU64::new(0);
    fail_if_stalled(|progress| {
        let beside = |_: &Bench, directory: &TableDirectory, worker: &Worker| {
            let (_, findings) = check(directory, worker);
            assert_eq!(findings, []);
            CHECKS.fetch_add(1, Ordering::Relaxed);
        };
        storm(progress, [3, 3_000], 40, 400, Some(&beside));
    });
    assert!(CHECKS.load(Ordering::Relaxed) > 0);
}

/// Each kind of damage, in the file, has a finding at its page. Afterwards there is none.
#[test]
fn damage_is_found_in_its_place() {
    let bench = Bench::new(64);
    let (worker, directory) = (bench.workers.worker(), bench.directory());
    let tree = directory.create(&worker, TABLE).expect("space");
    let mut visit = tree.visit(&worker);
    (0..1_000).for_each(|number| insert(&mut visit, &number_key(number), &[1; 60]));
    drop(visit);
    let pages: Vec<_> = tree
        .verify(&worker)
        .expect("whole")
        .pages
        .into_iter()
        .collect();
    clean_all(&bench, &worker);

    let raw = bench.device.open("rows").expect("it is there");
    let read = |page: PageId| {
        let mut image = vec![0; BYTES];
        raw.read_at(&mut image, page.number() * BYTES as u64)
            .expect("memory");
        image
    };
    let write_as_it_is = |page: PageId, image: &[u8]| {
        raw.write_at(image, page.number() * BYTES as u64)
            .expect("memory");
    };
    let write = |page: PageId, image: &[u8]| {
        let mut image = image.to_vec();
        image[8..16].copy_from_slice(&page.0.to_le_bytes());
        seal(&mut image, &IDENTITY);
        write_as_it_is(page, &image);
    };
    // A pool refuses pages that are older than it has seen them. So each look has its own pool.
    let look = |bench: Bench| {
        let bench = bench.reopen(64);
        let (_, findings) = check(&bench.directory(), &bench.workers.worker());
        (bench, findings)
    };
    let mut kept = None;
    let mut find = |bench: Option<Bench>, pages: &[PageId], damage: &dyn Fn()| {
        let bench = bench.or(kept.take()).expect("the last one");
        let whole = pages.iter().map(|page| read(*page)).collect::<Vec<_>>();
        damage();
        let (bench, findings) = look(bench);
        for (page, image) in pages.iter().zip(whole) {
            write_as_it_is(*page, &image);
        }
        let (bench, after) = look(bench);
        assert_eq!(after, [], "after the repair");
        kept = Some(bench);
        let found = findings.iter().map(|finding| finding.page);
        found.collect::<Vec<PageId>>()
    };

    let level = |page: &PageId| SlottedPage::new(&read(*page)[..]).level();
    let leaves: Vec<PageId> = pages
        .iter()
        .copied()
        .filter(|page| level(page) == 0)
        .collect();
    let (leaf, other) = (leaves[3], leaves[7]);
    let branch = pages.iter().copied().find(|page| level(page) == 1);
    let branch = branch.expect("it has two levels");
    let size = bench.pool.page_size();
    let position = size.map_position(leaf);
    let set_used = |page: PageId, is_used: bool| {
        let mut map = read(position.map);
        let index = size.map_position(page).index;
        SpaceMap::new(&mut map[..]).set_used(index, is_used);
        write(position.map, &map);
    };
    let end = bench.pool.file().header().end;
    let map = read(position.map);
    let is_free = |page: &PageId| !SpaceMap::new(&map[..]).is_used(size.map_position(*page).index);
    let free = (3..end).rev().map(|number| PageId::new(0, number));
    let free = free.into_iter().find(is_free).expect("a free page");

    drop((tree, directory, worker));
    let flipped = find(Some(bench), &[leaf], &|| {
        let mut image = read(leaf);
        image[900] ^= 1;
        write_as_it_is(leaf, &image);
    });
    assert_eq!(flipped, [leaf], "a bit that its checksum does not cover");
    let stranger = find(None, &[leaf], &|| {
        let mut image = read(leaf);
        image[24..32].copy_from_slice(&77_u64.to_le_bytes());
        write(leaf, &image);
    });
    assert_eq!(stranger, [leaf], "a page of another table");
    let twice = find(None, &[leaf], &|| write(leaf, &read(other)));
    assert_eq!(twice, [leaf], "a copy of another leaf");
    let freed = find(None, &[position.map], &|| set_used(leaf, false));
    assert_eq!(freed, [leaf], "a page of a tree that is free in its map");
    let lost = find(None, &[position.map, free], &|| {
        write(free, &read(other));
        set_used(free, true);
    });
    assert_eq!(lost, [free], "a page that no branch leads to");
    let empty = find(None, &[position.map, free], &|| {
        write_as_it_is(free, &[0; BYTES]);
        set_used(free, true);
    });
    assert_eq!(empty, [free], "a page that was never written and is used");
    let swapped = find(None, &[branch], &|| {
        let mut image = read(branch);
        let (one, two) = {
            let content = SlottedPage::new(&image[..]);
            assert_eq!(content.kind(), Some(PageKind::Branch));
            (content.child(0).expect("a child"), content.child(1))
        };
        let two = two.expect("a child");
        let of_page = |page: PageId| page.0.to_le_bytes();
        let at = image.windows(8).position(|bytes| bytes == of_page(one));
        let at = at.expect("its number is in the page");
        image[at..at + 8].copy_from_slice(&of_page(two));
        write(branch, &image);
    });
    assert!(!swapped.is_empty(), "a branch that leads to a page twice");
}
