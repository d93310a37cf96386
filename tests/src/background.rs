//! A runtime of its own for the asynchronous parts of the support.

use std::future::Future;
use std::sync::{OnceLock, mpsc};

use tokio::runtime::{Builder, Runtime};

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("test-support")
            .enable_all()
            .build()
            .expect("the support's runtime starts")
    })
}

/// Runs the future to its end on the support's threads and blocks until then. Unlike `Runtime::block_on`, this may be called
/// from within another runtime.
pub fn block_on<F>(future: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    let (sender, receiver) = mpsc::sync_channel(1);
    let task = runtime().spawn(async move {
        // A caller that went away doesn't want the answer.
        drop(sender.send(future.await));
    });
    let answer = receiver.recv();
    drop(task);
    answer.expect("the future ended without a panic")
}
