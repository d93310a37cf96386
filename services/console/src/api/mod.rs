//! The same functions as JSON under `/api/v1`, for programs. Documented in docs/api.md.

mod body;
mod changes;
mod parameters;
mod reads;

use crate::routes::Table;

pub(crate) fn add_to(table: Table) -> Table {
    table
        .look("/api/v1/overview", reads::overview)
        .look("/api/v1/groups", reads::groups)
        .look("/api/v1/items", reads::items)
        .look("/api/v1/items/{item}", reads::item)
        .act("/api/v1/items/{item}/reveal", changes::reveal)
        .act("/api/v1/plans", changes::prepare)
        .review("/api/v1/plans/{plan}", reads::plan)
        .act("/api/v1/plans/{plan}/run", changes::carry_out)
        .look("/api/v1/runs", reads::runs)
        .look("/api/v1/runs/{run}", reads::run)
        .act("/api/v1/runs/{run}/steer", changes::steer)
        .look("/api/v1/history", reads::history)
}
