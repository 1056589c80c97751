//! Mending: files of a database whose checksums are made right again, whatever else is wrong with
//! them.
//!
//! Every byte that matters is covered by a checksum, so garbled files would only show that
//! checksums work. Here the checksums are computed again, so that the code behind them is tested.
//! This file follows docs/format.md and not the engine. A test checks that mending whole files
//! changes nothing, so the two agree.

use std::collections::BTreeMap;

/// The files of a directory, by name.
pub type Files = BTreeMap<String, Vec<u8>>;

const SECTOR: usize = 512;
const SEGMENT_HEADER: usize = 4096;
const RECORD_HEADER: usize = 24;
const MANIFEST_HEADER: usize = 72;
const IN_MANIFEST: usize = 40;
const LAYER_HEADER: usize = 64;
const BLOCK_HEADER: usize = 16;

/// Makes the checksums of all files right.
pub fn mend(files: &mut Files) {
    for head in ["foxton", "backup"] {
        if let Some(bytes) = files.get_mut(head).filter(|bytes| bytes.len() == SECTOR) {
            seal(bytes, 0, SECTOR - 4);
        }
    }
    // A backup has its identity at another offset than a database.
    let identity = ["foxton", "backup"].iter().zip([40, 16]);
    let identity = identity
        .filter_map(|(&name, at)| files.get(name)?.get(at..at + 16))
        .next();
    let Some(identity) = identity.map(<[u8]>::to_vec) else {
        return;
    };
    mend_log(files, &identity);
    mend_checkpoint(files, &identity);
}

/// Writes the CRC-32C of the bytes before `at`, begun with `start`, at `at`.
fn seal(bytes: &mut [u8], start: u32, at: usize) {
    let check = crc32c::crc32c_append(start, &bytes[..at]);
    bytes[at..at + 4].copy_from_slice(&check.to_le_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Mends segment headers, and each record from the first on, as far as records follow each other.
fn mend_log(files: &mut Files, identity: &[u8]) {
    let is_segment = |name: &str| name.starts_with("log-") && name.len() == 20;
    let names: Vec<String> = files
        .keys()
        .filter(|name| is_segment(name))
        .cloned()
        .collect();
    let Some(first) = names.first() else {
        return;
    };
    let Ok(mut lsn) = u64::from_str_radix(&first[4..], 16) else {
        return;
    };
    // The stream of all of them, and how many bytes of it each has.
    let (mut stream, mut sizes) = (Vec::new(), Vec::new());
    for name in &names {
        let bytes = files.get_mut(name).expect("it was listed");
        if bytes.len() >= SEGMENT_HEADER {
            seal(bytes, 0, SEGMENT_HEADER - 4);
        }
        let part = bytes.get(SEGMENT_HEADER..).unwrap_or_default();
        sizes.push(part.len());
        stream.extend_from_slice(part);
    }
    mend_records(&mut stream, identity, &mut lsn);
    let mut rest = &stream[..];
    for (name, size) in names.iter().zip(sizes) {
        let (part, behind) = rest.split_at(size);
        rest = behind;
        if size > 0 {
            let bytes = files.get_mut(name).expect("it was listed");
            bytes[SEGMENT_HEADER..].copy_from_slice(part);
        }
    }
}

/// Mends each record in `stream`, which begins at `lsn`, up to the first that is not one.
pub fn mend_records(stream: &mut [u8], identity: &[u8], lsn: &mut u64) {
    let (mut at, start) = (0, crc32c::crc32c(identity));
    while let Some(length) = u32_at(stream, at + 4) {
        let end = at + RECORD_HEADER + length;
        let is_one = stream.get(at + 12).is_some_and(|&kind| kind != 0) && end <= stream.len();
        if !is_one {
            return;
        }
        let check = crc32c::crc32c(&stream[at + RECORD_HEADER..end]);
        stream[at + 8..at + 12].copy_from_slice(&check.to_le_bytes());
        let check = crc32c::crc32c_append(start, &lsn.to_le_bytes());
        let check = crc32c::crc32c_append(check, &stream[at + 4..at + RECORD_HEADER]);
        stream[at..at + 4].copy_from_slice(&check.to_le_bytes());
        let framed = (RECORD_HEADER + length).next_multiple_of(8);
        (at, *lsn) = (at + framed, lsn.wrapping_add(framed as u64));
    }
}

/// Mends the manifest, and the layers that it names: it has their length and the checksum of their
/// trailer.
fn mend_checkpoint(files: &mut Files, identity: &[u8]) {
    let Some(mut manifest) = files.remove("checkpoint") else {
        return;
    };
    if manifest.len() >= MANIFEST_HEADER + 4 {
        let length = manifest.len() as u32;
        manifest[12..16].copy_from_slice(&length.to_le_bytes());
        for at in places_of_layers(&manifest).unwrap_or_default() {
            let name = u64_at(&manifest, at).map(|number| format!("layer-{number:016x}"));
            let Some(layer) = name.and_then(|name| files.get_mut(&name)) else {
                continue;
            };
            let check = mend_layer(layer, identity);
            manifest[at + 8..at + 16].copy_from_slice(&(layer.len() as u64).to_le_bytes());
            if let Some(check) = check {
                manifest[at + 32..at + 36].copy_from_slice(&check);
            }
        }
        let end = manifest.len() - 4;
        seal(&mut manifest, 0, end);
    }
    files.insert("checkpoint".to_owned(), manifest);
}

/// Returns where in the manifest the layers are described.
fn places_of_layers(manifest: &[u8]) -> Option<Vec<usize>> {
    let (tables, layers) = (u32_at(manifest, 64)?, u32_at(manifest, 68)?);
    let mut at = MANIFEST_HEADER;
    for _ in 0..tables {
        at = at.checked_add(4)?.checked_add(u32_at(manifest, at)?)?;
    }
    let end = at.checked_add(layers.checked_mul(IN_MANIFEST)?)?;
    (end <= manifest.len() - 4).then(|| (at..end).step_by(IN_MANIFEST).collect())
}

/// Mends header, blocks, index and trailer, as far as they can be told apart. Returns the checksum
/// of the trailer.
fn mend_layer(bytes: &mut [u8], identity: &[u8]) -> Option<[u8; 4]> {
    let trailer = bytes
        .len()
        .checked_sub(64)
        .filter(|&at| at >= LAYER_HEADER)?;
    let start = crc32c::crc32c_append(crc32c::crc32c(identity), &bytes[32..40]);
    let begun = |at: usize| crc32c::crc32c_append(start, &(at as u64).to_le_bytes());
    seal(&mut bytes[..LAYER_HEADER], begun(0), LAYER_HEADER - 4);
    let index = usize::try_from(u64_at(bytes, trailer + 8)?).ok()?;
    let mut at = LAYER_HEADER;
    while let Some(length) = u32_at(bytes, at + 4).filter(|_| at < index) {
        let end = at + BLOCK_HEADER + length;
        if end > index.min(trailer) {
            break;
        }
        let check = crc32c::crc32c_append(begun(at), &bytes[at + 4..end]);
        bytes[at..at + 4].copy_from_slice(&check.to_le_bytes());
        at = end;
    }
    if (LAYER_HEADER..=trailer).contains(&index) {
        let check = crc32c::crc32c_append(begun(index), &bytes[index..trailer]);
        bytes[trailer + 24..trailer + 28].copy_from_slice(&check.to_le_bytes());
    }
    seal(&mut bytes[trailer..], begun(trailer), 60);
    bytes[trailer + 60..].try_into().ok()
}
