use super::*;
use isotherm_stdx::Prng;

/// A page that is changed at random, compared with a plain list of (tag, entry, access).
#[test]
fn random_changes_agree_with_a_list() {
    let mut prng = Prng::new(42);
    for round in 0..if cfg!(miri) { 3 } else { 200 } {
        let mut width = [0, 1, 2][round % 3];
        let mut bytes = vec![0u8; PAGE_BYTES_MAX];
        init(&mut bytes, 8, width, 3, 9);
        let mut model: Vec<(u8, Vec<u8>, u16)> = Vec::new();
        for _ in 0..if cfg!(miri) { 40 } else { 300 } {
            let entry: Vec<u8> = (0..4 + prng.below(40)).map(|_| prng.next_u64() as u8).collect();
            let access = prng.below(if width == 1 { 256 } else { 65536 }) as u16;
            match prng.below(8) {
                0..=3 if model.len() < 150 => {
                    if model.len() == Page(&bytes).cap() {
                        widen(&mut bytes, model.len() + 8, width, 0);
                    }
                    let tag = 1 + prng.below(6) as u8;
                    append(&mut bytes, tag, &entry, access);
                    model.push((tag, entry, access));
                }
                4 | 5 if !model.is_empty() => {
                    let at = prng.below(model.len() as u64) as usize;
                    let spot = Page(&bytes).spot(at);
                    replace(&mut bytes, spot, &entry);
                    model[at].1 = entry;
                }
                6 if !model.is_empty() => {
                    let at = prng.below(model.len() as u64) as usize;
                    let spot = Page(&bytes).spot(at);
                    remove(&mut bytes, spot);
                    model.remove(at);
                }
                7 if prng.one_in(4) => narrow(&mut bytes, model.len().next_multiple_of(8).max(8)),
                7 if prng.one_in(6) => {
                    let cap = Page(&bytes).cap();
                    let new = prng.below(3) as usize;
                    if new != width {
                        widen(&mut bytes, cap, new, 5);
                        model.iter_mut().for_each(|entry| entry.2 = 5);
                        width = new;
                    }
                }
                _ => {}
            }
            check(&bytes, &model, width);
        }
    }
}

fn check(bytes: &[u8], model: &[(u8, Vec<u8>, u16)], width: usize) {
    let page = Page(bytes);
    page.check_invariants();
    assert_eq!((page.len(), page.version(), page.stamp()), (model.len(), 3, 9));
    for (spot, (tag, entry, access)) in page.spots().zip(model) {
        assert_eq!(page.entry(spot), entry.as_slice());
        assert_eq!(page.tag(spot.index), *tag);
        assert_eq!(page.spot(spot.index), spot);
        assert_eq!(page.access(spot.index, width), (width != 0).then_some(*access));
        assert!(page.find(*tag, |found| found == entry.as_slice()).is_some());
    }
}
