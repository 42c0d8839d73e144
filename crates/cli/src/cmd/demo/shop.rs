//! The sample provider of the demo: a coffee shop in which each order is an activity that starts,
//! brews and ends.
//!
//! Its events are TraceLogging events, which carry their own schema. On a request for its state
//! (`weir capture-state`), it writes the number of served orders. The main loop does this, because
//! a callback should return quickly.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use traceweir::provider::EnableNotice;
use traceweir::{EventDescriptor, Guid, Provider};
use traceweir_format::spec::event::CHANNEL_TRACELOGGING;
use traceweir_format::spec::types::InType;
use traceweir_format::tracelogging::{MetadataBuilder, TraitsBuilder};
use traceweir_format::wire::Put;

use crate::cli::DemoShopArgs;
use crate::exit::CommandOutcome;

pub(super) const PROVIDER: &str = "Traceweir.Demo.CoffeeShop";
/// Events of one order.
pub(super) const EVENTS_PER_ORDER: u64 = 3;

const LEVEL_INFO: u8 = 4;
const LEVEL_WARNING: u8 = 3;
const OPCODE_START: u8 = 1;
const OPCODE_STOP: u8 = 2;
const EVENT_CONTROL_CODE_CAPTURE_STATE: u32 = 2;
/// How often a shop without orders checks for requests.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

const OUT_TYPE_BOOLEAN: u8 = 3;
const OUT_TYPE_UTF8: u8 = 35;

/// Runs the sample program, in its own process.
pub(crate) fn run_shop(options: &DemoShopArgs) -> Result<CommandOutcome> {
    let traits = TraitsBuilder::new(PROVIDER).finish()?.to_vec();
    let is_state_requested = Arc::new(AtomicBool::new(false));
    let request = Arc::clone(&is_state_requested);
    let callback = Box::new(move |notice: &EnableNotice<'_>| {
        if notice.code == EVENT_CONTROL_CODE_CAPTURE_STATE {
            request.store(true, Ordering::Relaxed);
        }
    });
    let id = Guid::from_provider_name(PROVIDER);
    let provider = Provider::register_with_traits(id, &traits, Some(callback));
    let provider = provider.context("cannot register the sample provider")?;
    let shop = Shop { provider, pause: Duration::from_millis(options.pause), is_state_requested };
    for order in 0..options.orders {
        shop.write_requested_state(order)?;
        shop.serve_order(options.first.wrapping_add(order))?;
    }
    let last_order_time = Instant::now();
    let linger = Duration::from_millis(options.linger);
    loop {
        shop.write_requested_state(options.orders)?;
        let remaining = linger.saturating_sub(last_order_time.elapsed());
        if remaining.is_zero() {
            break;
        }
        std::thread::sleep(remaining.min(POLL_INTERVAL));
    }
    Ok(CommandOutcome::Status(options.exit))
}

struct Shop {
    provider: Provider,
    pause: Duration,
    /// Whether a session has requested the state.
    is_state_requested: Arc<AtomicBool>,
}

impl Shop {
    /// Writes the state, if a session has requested it since the last call.
    fn write_requested_state(&self, served: u32) -> Result<()> {
        if !self.is_state_requested.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let mut metadata = MetadataBuilder::new("State", 0);
        metadata.add_field("served", InType::UINT32.0 as u8, 0, 0);
        self.write_event(LEVEL_INFO, 0, &Guid::default(), &mut metadata, &served.to_le_bytes())
    }

    fn serve_order(&self, number: u32) -> Result<()> {
        let (drink, shots, grams, celsius) = match number % 4 {
            1 => ("espresso", 1_u8, 18.2_f64, 93.0_f32),
            2 => ("flat white", 2, 18.5, 92.5),
            3 => ("filter, black", 0, 60.0, 94.1),
            _ => ("ristretto", 1, 18.0, 88.3),
        };
        let activity = Guid::from_u128(0x0c0f_fee0_0000_4000_8000_0000_0000_0000 | u128::from(number));
        let mut metadata = MetadataBuilder::new("Order", 0);
        metadata.add_field("number", InType::UINT32.0 as u8, 0, 0);
        metadata.add_field("drink", InType::ANSISTRING.0 as u8, OUT_TYPE_UTF8, 0);
        let mut payload = Vec::new();
        payload.put_u32(number).put_ansi_z(drink);
        self.write_event(LEVEL_INFO, OPCODE_START, &activity, &mut metadata, &payload)?;

        let mut metadata = MetadataBuilder::new("Brew", 0);
        metadata.add_struct("dose", 2, 0);
        metadata.add_field("grams", InType::DOUBLE.0 as u8, 0, 0);
        metadata.add_field("shots", InType::UINT8.0 as u8, 0, 0);
        metadata.add_field("celsius", InType::FLOAT.0 as u8, 0, 0);
        metadata.add_array("bar", InType::UINT16.0 as u8, 0, 0);
        let mut payload = Vec::new();
        payload.put(&grams.to_le_bytes()).put_u8(shots).put(&celsius.to_le_bytes());
        // The array `bar`: the number of elements, then three elements.
        payload.put_u16(3).put_u16(2).put_u16(9).put_u16(6);
        let level = if celsius < 90.0 { LEVEL_WARNING } else { LEVEL_INFO };
        self.write_event(level, 0, &activity, &mut metadata, &payload)?;

        let mut metadata = MetadataBuilder::new("Order", 0);
        metadata.add_field("number", InType::UINT32.0 as u8, 0, 0);
        metadata.add_field("paid", InType::UINT8.0 as u8, OUT_TYPE_BOOLEAN, 0);
        let mut payload = Vec::new();
        payload.put_u32(number).put_u8(u8::from(number % 4 != 3));
        self.write_event(LEVEL_INFO, OPCODE_STOP, &activity, &mut metadata, &payload)
    }

    fn write_event(
        &self,
        level: u8,
        opcode: u8,
        activity: &Guid,
        metadata: &mut MetadataBuilder,
        payload: &[u8],
    ) -> Result<()> {
        let channel = CHANNEL_TRACELOGGING;
        let descriptor = EventDescriptor { channel, level, opcode, keyword: 1, ..Default::default() };
        // The session counts lost events, so the shop ignores a failed write.
        let event = self.provider.event(&descriptor).metadata(metadata.finish()?).activity(activity);
        let _ = event.write(&[payload]);
        std::thread::sleep(self.pause);
        Ok(())
    }
}
