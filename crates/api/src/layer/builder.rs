//! The builder of a layer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use traceweir_format::Guid;
use traceweir_format::spec::status::Status;
use traceweir_format::tracelogging::TraitsBuilder;
use tracing_core::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Filtered;
use tracing_subscriber::registry::LookupSpan;

use super::EtwLayer;
use super::interest::{EtwFilter, LayerDispatch};
use super::naming::{MAX_TARGETS, NamedProviders, NamingRule};
use super::routes::{ByTarget, LayerRoutes};
use crate::Provider;
use crate::error::{Error, Result};
use crate::provider::EnableNotice;

/// A layer with its filter, for use in a subscriber; further filters may be added.
pub type BuiltLayer<S> = Filtered<EtwLayer, EtwFilter, S>;

/// Builds a layer that writes events and spans of `tracing` as events of one provider. Some targets
/// can have separate providers.
///
/// ```
/// # use tracing_subscriber::prelude::*;
/// use traceweir::layer::LayerBuilder;
///
/// let layer = LayerBuilder::new("Example.App")
///     .with_default_keyword(0x1)
///     .with_target_keyword("app::net", 0x2)
///     .with_target_provider("app::db", "Example.App.Database")
///     .build()?;
/// let subscriber = tracing_subscriber::registry().with(layer);
/// # tracing::subscriber::with_default(subscriber, || {
/// #     tracing::info!(target: "app::net", bytes = 12, "sent");
/// # });
/// # Ok::<(), traceweir::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct LayerBuilder {
    name: String,
    id: Guid,
    group: Option<Guid>,
    default_keyword: u64,
    keywords: ByTarget<u64>,
    /// Provider names by target.
    providers: ByTarget<String>,
    rule: Option<NamingRule>,
    only_targets: ByTarget<()>,
}

impl LayerBuilder {
    /// Creates a builder for a layer whose provider has this name, the id derived from it, and
    /// keyword 1 for all events.
    pub fn new(provider_name: &str) -> Self {
        Self {
            name: provider_name.to_owned(),
            id: Guid::from_provider_name(provider_name),
            group: None,
            default_keyword: 1,
            keywords: ByTarget::default(),
            providers: ByTarget::default(),
            rule: None,
            only_targets: ByTarget::default(),
        }
    }

    /// Sets an id other than the one derived from the name.
    pub fn with_provider_id(mut self, id: impl Into<Guid>) -> Self {
        self.id = id.into();
        self
    }

    /// Returns the id of the provider.
    #[must_use]
    pub fn get_provider_id(&self) -> Guid {
        self.id
    }

    /// Sets the group of the layer's provider and of the providers of targets.
    pub fn with_provider_group(mut self, group: impl Into<Guid>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Sets the keyword of events and spans whose target has no other. With 0, events reach every
    /// session, whatever its keywords, unless it ignores keyword 0.
    pub fn with_default_keyword(mut self, keyword: u64) -> Self {
        self.default_keyword = keyword;
        self
    }

    /// Sets the keyword of a target and its modules. If several targets match, the longest applies.
    pub fn with_target_keyword(mut self, target: &str, keyword: u64) -> Self {
        self.keywords.set(target, keyword);
        self
    }

    /// Sets a separate provider for a target and its modules, with the id derived from its name.
    /// Targets may share one.
    pub fn with_target_provider(mut self, target: &str, provider_name: &str) -> Self {
        self.providers.set(target, provider_name.to_owned());
        self
    }

    /// Sets a rule that names separate providers for targets that have none by
    /// [`with_target_provider`](Self::with_target_provider). Their ids are derived from the names.
    ///
    /// The rule is called before the first event or span of a target is written, which then waits
    /// for the registration. Normally it is called once for each target; if several threads write
    /// the first event at the same time, each of them may call it. After [`MAX_TARGETS`] targets,
    /// and if the rule returns `None` or a registration is refused, the layer's own provider is
    /// used.
    ///
    /// ```
    /// # use traceweir::layer::LayerBuilder;
    /// // One provider for each crate: App.hyper, App.tokio, …
    /// let layer = LayerBuilder::new("App")
    ///     .with_target_providers(|target| Some(format!("App.{}", target.split("::").next()?)));
    /// ```
    pub fn with_target_providers(
        mut self,
        name: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.rule = Some(NamingRule(Arc::new(name)));
        self
    }

    /// Registers the providers and creates the layer.
    ///
    /// Fails with ERROR_INVALID_PARAMETER for names that are empty or contain a NUL, a null group
    /// GUID, or more than [`MAX_TARGETS`] targets with providers or with keywords; and like
    /// [`Provider::register_with_traits`].
    pub fn build<S>(self) -> Result<BuiltLayer<S>>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        self.check()?;
        let dispatch = Arc::new(LayerDispatch::default());
        let (group, rule_dispatch) = (self.group, Arc::clone(&dispatch));
        let register_named = Box::new(move |name: &str| {
            register(name, Guid::from_provider_name(name), group.as_ref(), &rule_dispatch)
        });
        let routes = Arc::new(LayerRoutes {
            provider: register(&self.name, self.id, self.group.as_ref(), &dispatch)?,
            target_providers: self.register_target_providers(&dispatch)?,
            rule_providers: self.rule.map(|rule| NamedProviders::new(rule, register_named)),
            default_keyword: self.default_keyword,
            keywords: self.keywords,
            only_targets: self.only_targets,
        });
        static NEXT_LAYER_NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NEXT_LAYER_NUMBER.fetch_add(1, Ordering::Relaxed);
        let layer = EtwLayer { routes: Arc::clone(&routes), dispatch: Arc::clone(&dispatch), number };
        Ok(layer.with_filter(EtwFilter { routes, dispatch }))
    }

    /// Like [`build`](Self::build), for a layer that writes only the events and spans of two
    /// targets and their modules: this target, and the one whose name equals the provider's name.
    pub fn build_with_target<S>(mut self, target: &str) -> Result<BuiltLayer<S>>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        self.only_targets.set(target, ());
        self.only_targets.set(&self.name, ());
        self.build()
    }

    fn check(&self) -> Result<()> {
        let refuse = |reason: String| Err(Error::refused(Status::ERROR_INVALID_PARAMETER, reason));
        let names = self.providers.iter().map(|(_, name)| name).chain([&self.name]);
        if let Some(name) = names.into_iter().find(|name| name.is_empty() || name.contains('\0')) {
            return refuse(format!(
                "{name:?} is not a valid provider name: it must not be empty or contain NUL"
            ));
        }
        if self.group.is_some_and(|group| group.is_null()) {
            return refuse("the group of a provider needs a GUID that is not null".to_owned());
        }
        if self.providers.len() > MAX_TARGETS || self.keywords.len() > MAX_TARGETS {
            return refuse(format!("a layer names {MAX_TARGETS} targets at most"));
        }
        Ok(())
    }

    /// Registers one provider for each name.
    fn register_target_providers(&self, dispatch: &Arc<LayerDispatch>) -> Result<ByTarget<Arc<Provider>>> {
        let mut registered: Vec<(&str, Arc<Provider>)> = Vec::new();
        let mut target_providers = ByTarget::default();
        for (target, name) in self.providers.iter() {
            let already_registered = registered
                .iter()
                .find(|(registered_name, _)| registered_name == name)
                .map(|(_, p)| Arc::clone(p));
            let provider = match already_registered {
                Some(provider) => provider,
                None => {
                    Arc::new(register(name, Guid::from_provider_name(name), self.group.as_ref(), dispatch)?)
                }
            };
            registered.push((name, Arc::clone(&provider)));
            target_providers.set(target, provider);
        }
        Ok(target_providers)
    }
}

fn register(name: &str, id: Guid, group: Option<&Guid>, dispatch: &Arc<LayerDispatch>) -> Result<Provider> {
    let mut traits = TraitsBuilder::new(name);
    if let Some(group) = group {
        traits.group(group);
    }
    let dispatch = Arc::clone(dispatch);
    let on_change = Box::new(move |_: &EnableNotice<'_>| dispatch.rebuild());
    Provider::register_with_traits(id, traits.finish()?, Some(on_change))
}
