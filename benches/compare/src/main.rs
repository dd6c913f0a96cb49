mod server;
mod stacks;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;
fn main() {
    let addr = server::start(1);
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = format!("http://{addr}/ok");
    let heals = format!("http://{addr}/heals");
    for (n, call) in [("get", stacks::Call::get(url.clone())), ("post", stacks::Call::post(url.clone(), false)), ("keyed", stacks::Call::post(url.clone(), true)), ("heals", stacks::Call::get(heals))] {
        println!("== {n}");
        let mut base = (0, 0);
        for stack in stacks::all() {
            rt.block_on(async {
                for _ in 0..100 { stack.call(&call).await.unwrap(); }
                let region = Region::new(ALLOCATOR);
                for _ in 0..1000 { stack.call(&call).await.unwrap(); }
                let c = region.change();
                let bytes = c.bytes_allocated - stack.boxed() * 1000; if stack.name == "bare reqwest" { base = (c.allocations, bytes); }
                println!("{:<36} {:>8.2} {:>10.1}", stack.name, (c.allocations as f64 - base.0 as f64) / 1000.0, (bytes as f64 - base.1 as f64) / 1000.0);
            });
        }
    }
}
