//! Damage at rest: a database with changed bytes is refused, or has its right contents. The long
//! form, a million times: `cargo run --release -p foxton-sim --example flips -- --count 1000000`.

use foxton::TableComponent;
use foxton_sim::flip::{Answer, Harm, Original};

const EACH: u64 = 150;

#[test]
fn harm_is_noticed_or_does_nothing() {
    for component in TableComponent::ALL {
        for closed in [true, false] {
            let original = Original::new(1, 30, closed, component).expect("nothing fails");
            for harm in Harm::ALL {
                let answers: Vec<Answer> = (0..EACH)
                    .map(|seed| original.harm(harm, seed))
                    .collect::<Result<_, _>>()
                    .unwrap_or_else(|failure| panic!("{component}, closed: {closed}, {failure}"));
                let of = |answer| answers.iter().filter(|&&other| other == answer).count();
                let (refused, whole) = (of(Answer::Refused), of(Answer::Whole));
                println!(
                    "{component}, closed: {closed}, {harm:?}: {refused} refused, {whole} whole"
                );
                // A file that is older than the rest may be a whole log that ends earlier.
                assert!(
                    refused > 0 || harm == Harm::Stale,
                    "{component}, closed: {closed}: no {harm:?} was noticed"
                );
            }
        }
    }
}
