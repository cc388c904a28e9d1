//! Which columns of a table are shown, and how wide.
//!
//! Columns stand in the order of their importance. Text with spaces may be wrapped between words; everything else
//! keeps its width. Columns are dropped from the right until the rest fits.

/// Text is wrapped to this width before a column is dropped for it.
const WRAPPED: usize = 32;
/// Between two columns.
pub const GAP: usize = 2;

/// How much room a column wants, and the least that does not break a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub natural: usize,
    pub least: usize,
}

impl Extent {
    /// Of a column with these cells, measured by `width`.
    pub fn measure<'a>(cells: impl Iterator<Item = &'a str>, width: impl Fn(&str) -> usize) -> Self {
        let (mut natural, mut word) = (0, 0);
        for cell in cells {
            natural = natural.max(cell.lines().map(&width).max().unwrap_or(0));
            word = word.max(cell.split_whitespace().map(&width).max().unwrap_or(0));
        }
        Self { natural, least: natural.min(WRAPPED.max(word)) }
    }
}

/// The widths of the columns that are shown: the first ones of `wanted`, at least one.
pub fn columns(wanted: &[Extent], room: Option<usize>) -> Vec<usize> {
    let Some(room) = room else { return wanted.iter().map(|column| column.natural).collect() };
    let needed = |shown: &[Extent]| {
        shown.iter().map(|column| column.least).sum::<usize>() + GAP * shown.len().saturating_sub(1)
    };
    let count = (1..=wanted.len()).rev().find(|count| needed(&wanted[..*count]) <= room).unwrap_or(1);
    let shown = &wanted[..count.min(wanted.len())];
    let mut spare = room.saturating_sub(needed(shown));
    let widths = shown.iter().map(|column| {
        let more = (column.natural - column.least).min(spare);
        spare -= more;
        column.least + more
    });
    widths.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn fixed(width: usize) -> Extent {
        Extent { natural: width, least: width }
    }

    const fn prose(natural: usize) -> Extent {
        Extent { natural, least: if natural < WRAPPED { natural } else { WRAPPED } }
    }

    #[test]
    fn the_last_columns_are_dropped_until_the_rest_fits() {
        let wanted = [fixed(10), fixed(10), fixed(10)];
        assert_eq!(columns(&wanted, Some(34)), [10, 10, 10]);
        assert_eq!(columns(&wanted, Some(33)), [10, 10]);
        assert_eq!(columns(&wanted, Some(5)), [10], "the first one is always shown");
        assert_eq!(columns(&wanted, None), [10, 10, 10]);
    }

    #[test]
    fn text_is_wrapped_before_a_column_is_dropped() {
        let wanted = [fixed(10), prose(100), fixed(10)];
        assert_eq!(columns(&wanted, Some(80)), [10, 56, 10]);
        assert_eq!(columns(&wanted, Some(56)), [10, WRAPPED, 10]);
        assert_eq!(columns(&wanted, Some(55)), [10, 43]);
    }

    #[test]
    fn a_word_is_never_broken() {
        let address = "https://example.org/a/long/address of it";
        let measured = Extent::measure([address].into_iter(), str::len);
        assert_eq!(measured, Extent { natural: 40, least: 34 });
    }

    proptest! {
        #[test]
        fn what_is_shown_fits_and_nothing_shown_is_below_its_least(
            wanted in prop::collection::vec((1_usize..60, 1_usize..60), 1..12), room in 20_usize..240,
        ) {
            let wanted: Vec<Extent> = wanted
                .into_iter()
                .map(|(a, b)| Extent { natural: a.max(b), least: a.min(b) })
                .collect();
            let widths = columns(&wanted, Some(room));
            let total = widths.iter().sum::<usize>() + GAP * (widths.len() - 1);
            prop_assert!(total <= room || widths.len() == 1);
            for (width, extent) in widths.iter().zip(&wanted) {
                prop_assert!(extent.least <= *width && *width <= extent.natural);
            }
            // One more would not have fitted.
            if let Some(next) = wanted.get(widths.len()) {
                let least: usize = wanted[..=widths.len()].iter().map(|column| column.least).sum();
                prop_assert!(least + GAP * widths.len() > room, "{next:?} fits");
            }
        }
    }
}
