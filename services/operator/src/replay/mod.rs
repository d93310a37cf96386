//! Acting on items: what is selected, what would happen, the order, and the run that carries it out.

mod course;
mod dry_run;
mod edit;
mod fit;
mod keys;
mod order;
mod originals;
mod outgoing;
mod places;
mod publish;
mod queues;
mod run;
mod selection;

pub use dry_run::{ClassForecast, DryRun, Example};
pub use edit::Edited;
pub use order::{Ordering, Outcome, Pace};
pub use originals::Original;
pub use run::{RunEnd, RunProgress};
pub use selection::{Selected, Selection, Snapshot};
