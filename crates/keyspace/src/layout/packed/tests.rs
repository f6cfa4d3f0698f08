//! Packed elements compared with a list of texts.

use super::*;
use isotherm_stdx::Prng;

#[test]
fn elements_take_what_they_need() {
    let check = |texts: &[&[u8]], stride: usize, bytes: usize| {
        let mut buf = PackedBuf::default();
        buf.clear(stride);
        texts.iter().for_each(|text| buf.push(Element::of(text)));
        let mut out = Vec::new();
        buf.encode(&mut out);
        assert_eq!(out.len(), bytes, "{texts:?}");
        let packed = Packed::new(&out, stride);
        let back: Vec<Vec<u8>> = packed.cells().map(|cell| cell.element().to_vec()).collect();
        assert_eq!(back, texts.iter().map(|text| text.to_vec()).collect::<Vec<_>>());
    };
    check(&[b"abcdefghijklmnopqrstuvwxyz01", b"1"], 2, 31);
    check(&[b"f1", b"11111x", b"f2", b"22222x"], 2, 19);
    check(&[b"0", b"1", b"49", b"50", b"-1"], 1, 1 + 5 + 2);
    check(&[b"01", b"+1", b"-0", b""], 1, 1 + 4 + 6);
    check(&[b"9223372036854775807", b"-9223372036854775808"], 1, 1 + 1 + 16);
    check(&[&[7; 191], &[7; 192]], 1, 1 + 2 + 191 + 4 + 192);
    check(&[], 1, 1);
}

#[test]
fn scores_come_back_exactly() {
    let mut buf = PackedBuf::default();
    buf.clear(2);
    let scores = [0.0, -0.0, 1.0, 49.0, -7.0, 0.5, 1e300, f64::INFINITY, -f64::INFINITY, 9.3e18, -9.3e18];
    for score in scores {
        buf.push(Element::Bytes(b"m"));
        buf.push_coded(Coded::score(score));
    }
    let mut out = Vec::new();
    buf.encode(&mut out);
    let packed = Packed::new(&out, 2);
    for (row, score) in scores.iter().enumerate() {
        let found = packed.get(row * 2 + 1).expect("it is there").score();
        assert_eq!(found.to_bits(), score.to_bits(), "{score}");
    }
}

#[test]
fn random_changes_agree_with_a_list() {
    let mut prng = Prng::new(7);
    for round in 0..if cfg!(miri) { 3 } else { 300 } {
        let stride = 1 + round % 2;
        let (mut buf, mut model) = (PackedBuf::default(), Vec::<Vec<u8>>::new());
        buf.clear(stride);
        let mut out = Vec::new();
        for _ in 0..200 {
            let text = random_text(&mut prng, round % 3 == 0);
            let at = prng.below(model.len() as u64 + 1) as usize;
            match prng.below(4) {
                0 | 1 => {
                    buf.insert(at, Element::of(&text));
                    model.insert(at, text);
                }
                2 if at < model.len() => {
                    buf.replace(at, Element::of(&text));
                    model[at] = text;
                }
                3 if at < model.len() => {
                    let count = 1 + prng.below(3.min(model.len() - at) as u64) as usize;
                    buf.remove(at, count);
                    model.drain(at..at + count);
                }
                _ => {}
            }
            check_same(&buf, &model, stride, &mut out);
            buf.load(&out, stride);
        }
    }
}

fn random_text(prng: &mut Prng, same: bool) -> Vec<u8> {
    match if same { 0 } else { prng.below(5) } {
        0 => format!("t{:05}", prng.below(30)).into_bytes(),
        1 => (prng.next_u64() as i64 >> prng.below(64)).to_string().into_bytes(),
        2 => prng.below(60).to_string().into_bytes(),
        3 => vec![b'x'; 180 + prng.below(30) as usize],
        _ => vec![b'y'; prng.below(12) as usize],
    }
}

fn check_same(buf: &PackedBuf, model: &[Vec<u8>], stride: usize, out: &mut Vec<u8>) {
    buf.encode(out);
    assert!(out.len() <= buf.bytes_bound());
    for packed in [buf.view(), Packed::new(out, stride)] {
        assert_eq!(packed.len(), model.len());
        for (index, text) in model.iter().enumerate() {
            assert!(packed.get(index).expect("it is there").element().is_text(text));
            let column = index % stride;
            let first = (column..=index).step_by(stride).find(|&at| model[at] == *text);
            assert_eq!(packed.find(column, Element::of(text)), first);
        }
        assert_eq!(packed.get(model.len()), None);
        assert_eq!(packed.find(0, Element::of(b"absent")), None);
    }
}
